#include "daemon/service.h"

extern char **environ;

int main(int argc, char **argv)
{
    return service_main(argc, argv, environ);
}
