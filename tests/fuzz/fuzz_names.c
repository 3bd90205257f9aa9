/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz entry: names out of a damaged target memory.
 *
 * The input is a list of changes to the world of lj_image.h: the first byte
 * chooses the pointer mode and whether the memory ends early, then come records
 * of eight bytes, see struct change. So an input that is empty is a valid
 * memory, and each byte of a longer one matters.
 *
 * With -DFUZZ_MAIN a program of its own: it replays the files that are named,
 * or else runs -n N (default 20000) random inputs, from -s SEED.
 */
#include <stdio.h>

#include "../unit/lj_image.h"
#include "names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct change {
	uint8_t op; /* 0 set a byte, 1 fill, 2 and 3 copy */
	uint8_t size;
	uint16_t at;
	uint16_t from;
	uint16_t value;
};

/* A copy of the world, changed as the input says. */
static const struct world *make_memory(struct img *img, const uint8_t *data,
				       size_t size)
{
	static struct img made[2];
	static struct world worlds[2];
	bool gc64 = *data & 1;
	struct img *from = &made[gc64];
	struct change change;

	if (!from->off) {
		img_init(from,
			 gc64 ? &lj_offsets_table[0].offsets : &img_non_gc64);
		worlds[gc64] = world_make(from);
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

static struct lb_proto_rec make_rec(struct img *img, uint64_t addr)
{
	const struct lj_offsets *off = img->off;
	struct lb_proto_rec rec = { .proto_addr = addr };

	img_read(img, addr + off->pt_chunkname, &rec.chunk_addr,
		 img_ref_size(img));
	img_read(img, addr + off->pt_firstline, &rec.first_line, 4);
	img_read(img, addr + off->pt_numline, &rec.num_line, 4);
	img_read(img, addr + off->pt_sizebc, &rec.size_bc, 4);
	img_read(img, rec.chunk_addr + off->str_len, &rec.chunk_len, 4);
	rec.chunk_got =
		rec.chunk_len < LB_CHUNK_MAX ? rec.chunk_len : LB_CHUNK_MAX;
	if (img_read(img, rec.chunk_addr + off->str_size, rec.chunk,
		     rec.chunk_got))
		rec.chunk_got = 0;
	return rec;
}

static void must(bool cond)
{
	if (!cond)
		abort();
}

static void check_text(const char *text)
{
	must(text && *text && strchr(text, '@'));
	for (; *text; text++)
		must((unsigned char)*text >= 0x20 && *text != 0x7f &&
		     *text != ';');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct img img;
	const struct world *world;
	struct lb_names *names;
	uint32_t ids[WORLD_N] = { 0 };

	if (!size)
		return 0;
	world = make_memory(&img, data, size);
	if (lb_names_new(img_read, &img, &names))
		abort();
	for (int i = 0; i < WORLD_N; i++) {
		struct lb_proto_rec rec = make_rec(&img, world->protos[i]);

		lb_names_add_proto(names, &rec, img.off, &ids[i]);
	}
	lb_names_scan_tables(names, world->g_addr, img.off);
	for (uint32_t pos = 0; pos < 32; pos++)
		lb_names_add_call(names, ids[WORLD_MAIN], pos,
				  ids[pos % WORLD_N]);
	for (int i = 0; i < WORLD_N; i++)
		check_text(lb_names_proto_text(names, ids[i], LB_LINE_UNKNOWN));
	for (uint32_t ffid = 0; ffid < 256; ffid++)
		check_text(lb_names_fast_text(names, world->g_addr, ffid));
	lb_names_free(names);
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

static uint32_t next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static void run_random(long rounds, uint32_t state)
{
	uint8_t data[1 + 32 * sizeof(struct change)];

	for (long i = 0; i < rounds; i++) {
		size_t n = 1 + next_random(&state) % 32;

		for (size_t k = 0; k < sizeof(data); k++)
			data[k] = (uint8_t)(next_random(&state) >> 8);
		/* sizes break at extremes */
		for (size_t k = 0; k < n; k++) {
			if (next_random(&state) % 4 == 0)
				memset(data + 7 + 8 * k, k & 1 ? 0xff : 0, 2);
		}
		if (next_random(&state) % 8) /* mostly whole */
			data[0] &= (uint8_t)~2;
		LLVMFuzzerTestOneInput(data, 1 + n * sizeof(struct change));
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
