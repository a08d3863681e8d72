/* What is supervised in every measurement: as small as a process can be. It tells when it began
   to run (CLOCK_MONOTONIC) by one datagram, and waits for ever. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **arguments) {
    struct timespec now;
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char text[128];
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (count == 3) {
        int length = snprintf(text, sizeof text, "%s %d %lld", arguments[2], getpid(),
                              now.tv_sec * 1000000000LL + now.tv_nsec);
        int socket_to = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        strncpy(to.sun_path, arguments[1], sizeof to.sun_path - 1);
        sendto(socket_to, text, length, 0, (struct sockaddr *)&to, sizeof to);
        close(socket_to);
    }
    for (;;) pause();
}
