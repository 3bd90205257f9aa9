/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 100 C frames with the work at the bottom, built with frame pointers: the
 * one kind of target where a walk along frame pointers is complete.
 */
#include <stdio.h>

static volatile unsigned int sink;

__attribute__((noinline)) static unsigned int spin(unsigned int n)
{
	unsigned int s = 0;

	for (unsigned int i = 0; i < n; i++) {
		s += i;
		sink = s;
	}
	return s;
}

__attribute__((noinline)) static unsigned int deep(unsigned int n)
{
	volatile unsigned int pad[8] = { n };

	if (n == 1)
		return spin(20000) + pad[0];
	/* the addition keeps this from being a tail call */
	return deep(n - 1) + pad[0];
}

int main(void)
{
	puts("ready");
	fflush(stdout);
	for (;;)
		sink = deep(98);
}
