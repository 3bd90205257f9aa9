/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A static program of another C library, without LuaJIT: native frames only.
 * `musl_native`. Its truth is what work_a and work_b take of CPU time.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#define KEEP __attribute__((noipa))

static volatile unsigned long sink;

static double cpu_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static KEEP void inner(long n)
{
	for (long i = 0; i < n; i++)
		sink += (unsigned long)i;
}

static KEEP void work_a(long n)
{
	inner(n);
	sink++;
}

static KEEP void work_b(long n)
{
	inner(n);
	sink++;
}

static KEEP void run(void)
{
	double a = 0, b = 0, next = 0;
	unsigned long seed = 1;
	time_t start = time(NULL);

	while (time(NULL) - start < 120) {
		/* Of another length each time, or sampler and loop may fall
		 * into step. */
		seed = seed * 16807 % 2147483647;
		for (unsigned long i = 0; i < seed % 400000; i++)
			sink += i;
		double t0 = cpu_seconds();

		work_a(1400000);
		double t1 = cpu_seconds();

		work_b(600000);
		double t2 = cpu_seconds();

		a += t1 - t0;
		b += t2 - t1;
		if (t2 < next)
			continue;
		if (next == 0)
			puts("ready");
		next = t2 + 0.02;
		printf("truth cpu=%.6f work_a=%.6f work_b=%.6f\n", t2, a, b);
		fflush(stdout);
	}
}

int main(void)
{
	run();
	sink++;
	return 0;
}
