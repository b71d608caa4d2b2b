#include "client/command/command.h"
#include "protocol/base/standard.h"

int main(int argc, char **argv)
{
    if (standard_open())
        return STATUS_SERVER;
    return command_main(argc, argv);
}
