#include "daemon/service/service.h"
#include "protocol/base/standard.h"

extern char **environ;

int main(int argc, char **argv)
{
    if (standard_open())
        return EXIT_OUTPUT;
    return service_main(argc, argv, environ);
}
