/* The unavoidable work: write batches of one size one after another, each durable before the next.
 *
 *   plain PATH BATCH_BYTES COUNT      prints the seconds that it took
 *
 * The file is allocated ahead, as the disk's WAL files are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + at.tv_nsec / 1e9;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    size_t size = strtoull(arguments[2], NULL, 10);
    long batches = strtol(arguments[3], NULL, 10);
    unsigned char *batch = malloc(size);
    if (!batch) return 3;
    unsigned int seed = 1;
    for (size_t place = 0; place < size; place++) batch[place] = (unsigned char)rand_r(&seed);
    int file = open(arguments[1], O_CREAT | O_RDWR | O_TRUNC, 0600);
    if (file < 0 || posix_fallocate(file, 0, (off_t)size * batches)) return 4;
    fsync(file);
    double began = now();
    for (long done = 0; done < batches; done++) {
        if (pwrite(file, batch, size, (off_t)size * done) != (ssize_t)size) return 5;
        if (fdatasync(file)) return 6;
    }
    printf("%.9f\n", now() - began);
    return 0;
}
