/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz entry: traces out of a damaged target memory.
 *
 * The input is a list of changes to the memory of trace_image.h: the first
 * byte chooses the pointer mode and whether the memory ends early, then come
 * records of eight bytes, see struct change. An input that is empty is a valid
 * memory.
 *
 * With -DFUZZ_MAIN a program of its own: it runs -n N (default 20000) random
 * inputs, from -s SEED, or replays the files that are named.
 */
#include <stdio.h>

#include "../unit/trace_image.h"
#include "tracemap.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct change {
	uint8_t op; /* 0 set a byte, 1 fill, 2 and 3 copy */
	uint8_t size;
	uint16_t at;
	uint16_t from;
	uint16_t value;
};

static void must(bool cond)
{
	if (!cond)
		abort();
}

/* A copy of the memory, changed as the input says. */
static const struct trace_world *make_memory(struct img *img,
					     const uint8_t *data, size_t size)
{
	static struct img made[2];
	static struct trace_world worlds[2];
	bool gc64 = *data & 1;
	struct img *from = &made[gc64];
	struct change change;

	if (!from->off) {
		img_init(from, trace_offsets(gc64));
		worlds[gc64] = trace_world_make(from);
	}
	img_init(img, from->off);
	wr_bytes(&img->wr, from->wr.data, from->wr.size);
	for (size_t i = 1; i + sizeof(change) <= size; i += sizeof(change)) {
		size_t room = img->wr.size - 16;

		memcpy(&change, data + i, sizeof(change));
		uint8_t *at = img->wr.data + change.at % room;

		if (change.op % 4 == 0)
			*at = (uint8_t)change.value;
		else if (change.op % 4 == 1)
			memset(at, change.value, change.size % 16);
		else
			memmove(at, img->wr.data + change.from % room,
				change.size % 16);
	}
	if (*data & 2)
		img->wr.size = img->wr.size * (*data >> 2) / 64;
	return &worlds[gc64];
}

/* What whoever uses a map relies on. */
static void check_map(const struct lb_tracemap *map)
{
	for (uint32_t i = 0; i < map->n_nodes; i++)
		must(map->nodes[i].parent == LB_NODE_NONE ||
		     map->nodes[i].parent < i);
	for (uint32_t i = 0; i < map->n_spans; i++) {
		must(!i || map->spans[i].ofs > map->spans[i - 1].ofs);
		must(map->spans[i].node == LB_NODE_NONE ||
		     map->spans[i].node < map->n_nodes);
		must(map->spans[i].node != LB_NODE_NONE ||
		     !map->spans[i].exact);
	}
	must(map->n_spans && !map->spans[0].ofs);
	for (uint32_t ofs = 0; ofs < map->szmcode && ofs < 4096; ofs++)
		must(lb_tracemap_at(map, map->mcode + ofs) != NULL);
	must(!lb_tracemap_at(map, map->mcode + map->szmcode));
}

static void try_trace(struct img *img, const struct trace_world *world,
		      struct lb_target *target, const struct lb_trace *trace)
{
	static struct lb_trace_snap snap;
	struct lb_tracemap *map;
	struct lb_names *names;
	struct lb_funcs *funcs;

	for (uint32_t i = 0; i <= trace->n_snaps && i < 64; i++)
		lb_trace_snap(img->off, trace, i, &snap);
	must(!lb_names_new(img_read, img, &names));
	must(!lb_funcs_new(names, &funcs));
	lb_funcs_round(funcs, target, world->g_addr, 0);
	lb_funcs_proto(funcs, world->protos[TRACE_OUTER]);
	if (!lb_tracemap_new(target, funcs, trace, &map)) {
		check_map(map);
		lb_tracemap_free(map);
	}
	lb_funcs_free(funcs);
	lb_names_free(names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct img img;
	struct lb_trace trace;

	if (!size)
		return 0;
	const struct trace_world *world = make_memory(&img, data, size);
	struct lb_target target = { .read = img_read,
				    .read_arg = &img,
				    .off = img.off,
				    .budget = 10000 };

	if (!lb_trace_read(&target, world->g_addr, TRACE_NO, 0, &trace)) {
		lb_trace_check(&target, world->g_addr, &trace);
		try_trace(&img, world, &target, &trace);
		lb_trace_fini(&trace);
	}
	img_fini(&img);
	return 0;
}

#ifdef FUZZ_MAIN
static void replay(const char *path)
{
	FILE *file = fopen(path, "r");
	uint8_t *data = malloc(1 << 20);

	must(file && data);
	LLVMFuzzerTestOneInput(data, fread(data, 1, 1 << 20, file));
	fclose(file);
	free(data);
}

static void run_random(long rounds, uint32_t state)
{
	uint8_t data[1 + 16 * sizeof(struct change)];

	for (long i = 0; i < rounds; i++) {
		for (size_t k = 0; k < sizeof(data); k++) {
			state ^= state << 13;
			state ^= state >> 17;
			state ^= state << 5;
			data[k] = (uint8_t)(state >> 8);
		}
		if (data[0] & 0xe0) /* mostly whole */
			data[0] &= (uint8_t)~2;
		LLVMFuzzerTestOneInput(
			data, 1 + (1 + state % 16) * sizeof(struct change));
	}
}

int main(int argc, char **argv)
{
	long rounds = 20000;
	uint32_t seed = 1;
	bool files = false;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "-n") && i + 1 < argc) {
			rounds = atol(argv[++i]);
		} else if (!strcmp(argv[i], "-s") && i + 1 < argc) {
			seed = (uint32_t)strtoul(argv[++i], NULL, 0) | 1;
		} else {
			replay(argv[i]);
			files = true;
		}
	}
	if (!files)
		run_random(rounds, seed);
	return 0;
}
#endif
