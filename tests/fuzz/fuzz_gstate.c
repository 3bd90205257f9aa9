/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: the look at a VM in memory. The first byte chooses the build,
 * the rest is the memory, with the main thread at its begin.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "gstate.h"
#include "offsets.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BASE UINT64_C(0x1000) /* low, so that few bits lead into it */

struct memory {
	const uint8_t *data;
	size_t size;
};

static int read_memory(void *arg, uint64_t addr, void *buf, size_t size)
{
	const struct memory *memory = arg;
	uint64_t at = addr - BASE;

	if (at > memory->size || size > memory->size - at)
		return -EFAULT;
	memcpy(buf, memory->data + at, size);
	return 0;
}

static void look(struct memory *memory, const struct lj_offsets *off,
		 uint64_t g_addr)
{
	struct lb_target target = { .read = read_memory,
				    .read_arg = memory,
				    .off = off,
				    .budget = 20000 };
	struct lb_gstate gstate;

	if (lb_gstate_read(&target, g_addr, &gstate))
		return;
	if (gstate.g_addr != g_addr ||
	    (gstate.n_objects != LB_GSTATE_UNKNOWN &&
	     (gstate.n_objects > LB_GSTATE_OBJECTS_MAX ||
	      gstate.n_threads > gstate.n_objects)))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct lj_offsets *off;
	const char *name;

	if (!size || lb_offsets_entry(data[0] % 32, &off, &name))
		return 0;

	struct memory memory = { data + 1, (size - 1) / 8 * 8 };
	look(&memory, off, BASE + off->l_size);
	return 0;
}
