/* The forwarding process of an emulated link: two TUN devices in, one path each way between them.
 *
 *     forwarder DEVICE_A_FD DEVICE_B_FD LISTENER_FD [LIFELINE_FD]
 *
 * The listener is a unix stream socket. Each connection says one line and is answered by one:
 *
 *     profile DELAY_NS JITTER_NS BITS_PER_S LOSS QUEUE_BYTES    ok      (each way)
 *     cut NANOSECONDS                                           ok
 *     counters                                                  JSON, one object each way
 *
 * It ends when the lifeline (a pipe whose other end its parent holds) is closed, on SIGTERM, or when
 * a device goes away.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "direction.h"

static struct direction a_to_b, b_to_a;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void write_counters(FILE *to, const char *name, const struct counters *counters) {
    fprintf(to,
            "\"%s\": {\"packets\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"lost\": %" PRIu64
            ", \"dropped\": %" PRIu64 ", \"cut\": %" PRIu64 ", \"refused\": %" PRIu64 "}",
            name, counters->packets, counters->bytes, counters->lost, counters->dropped,
            counters->cut, counters->refused);
}

static void answer_counters(FILE *to) {
    const struct counters forth = direction_counters(&a_to_b), back = direction_counters(&b_to_a);
    fputs("{", to);
    write_counters(to, "a_to_b", &forth);
    fputs(", ", to);
    write_counters(to, "b_to_a", &back);
    fputs("}\n", to);
}

static void answer(const char *line, FILE *to) {
    struct profile profile;
    int64_t for_ns;
    if (sscanf(line, "profile %" SCNd64 " %" SCNd64 " %lf %lf %" SCNu64, &profile.delay_ns,
               &profile.jitter_ns, &profile.bits_per_s, &profile.loss, &profile.queue_bytes) == 5) {
        direction_order(&a_to_b, &profile);
        direction_order(&b_to_a, &profile);
        fputs("ok\n", to);
    } else if (sscanf(line, "cut %" SCNd64, &for_ns) == 1) {
        direction_order_cut(&a_to_b, for_ns);
        direction_order_cut(&b_to_a, for_ns);
        fputs("ok\n", to);
    } else if (strncmp(line, "counters", 8) == 0) {
        answer_counters(to);
    } else {
        fputs("error: not a command\n", to);
    }
}

/* One line, one answer. A client that says nothing is not waited for. */
static void serve(int listener) {
    const int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (connection < 0)
        return;
    const struct timeval patience = {.tv_sec = 1};
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    char line[256];
    const ssize_t size = read(connection, line, sizeof line - 1);
    line[size > 0 ? size : 0] = '\0';
    FILE *stream = fdopen(connection, "w");
    if (stream == NULL)
        die("link forwarder: control");
    answer(line, stream);
    fclose(stream);
}

static void start(struct direction *direction) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, direction_run, direction) != 0)
        die("link forwarder: thread");
}

int main(int num_arguments, char **arguments) {
    if (num_arguments < 4) {
        fputs("usage: forwarder DEVICE_A_FD DEVICE_B_FD LISTENER_FD [LIFELINE_FD]\n", stderr);
        return 2;
    }
    const int device_a = atoi(arguments[1]), device_b = atoi(arguments[2]);
    const int listener = atoi(arguments[3]);
    const int lifeline = num_arguments > 4 ? atoi(arguments[4]) : -1;
    signal(SIGPIPE, SIG_IGN);
    if (direction_open(&a_to_b, device_a, device_b) || direction_open(&b_to_a, device_b, device_a))
        die("link forwarder");
    start(&a_to_b);
    start(&b_to_a);
    struct pollfd ends[] = {{.fd = listener, .events = POLLIN}, {.fd = lifeline, .events = POLLIN}};
    while (poll(ends, 2, -1) >= 0) {
        if (ends[1].revents)
            return 0;
        if (ends[0].revents)
            serve(listener);
    }
    return 0;
}
