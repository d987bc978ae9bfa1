/* Preloaded into a command: once the file $REASONER_TEST_CLOCK exists, the wall clock is a day behind. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define DAY 86400

static int is_back(void) {
    const char *file = getenv("REASONER_TEST_CLOCK");
    return file != NULL && access(file, F_OK) == 0;
}

int clock_gettime(clockid_t which, struct timespec *out) {
    static int (*real)(clockid_t, struct timespec *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(which, out);
    if (result == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) && is_back()) out->tv_sec -= DAY;
    return result;
}

int gettimeofday(struct timeval *out, void *zone) {
    static int (*real)(struct timeval *, void *);
    if (real == NULL) real = dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(out, zone);
    if (result == 0 && is_back()) out->tv_sec -= DAY;
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) *out = now.tv_sec;
    return now.tv_sec;
}
