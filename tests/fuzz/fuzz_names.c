/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz entry: names out of a target memory that is the input.
 *
 * The first byte chooses the pointer mode, the rest is memory at IMG_BASE, with
 * the objects that a record and a scan ask for where the world of lj_image.h
 * has them. With -DFUZZ_MAIN a program of its own: it replays the files that
 * are named, or else N (default 20000) random changes of that world.
 */
#include <stdio.h>

#include "../unit/lj_image.h"
#include "names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Where the objects are: the same in every input. */
static const struct world *world_of(const struct lj_offsets *off)
{
	static struct world worlds[2];
	static bool made[2];

	if (!made[off->gc64]) {
		struct img img;

		img_init(&img, off);
		worlds[off->gc64] = world_make(&img);
		img_fini(&img);
		made[off->gc64] = true;
	}
	return &worlds[off->gc64];
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
	img_init(&img,
		 *data & 1 ? &lj_offsets_table[0].offsets : &img_non_gc64);
	world = world_of(img.off);
	wr_bytes(&img.wr, data + 1, size - 1);
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

/* The input that is the world itself. */
static struct wr make_seed(bool gc64)
{
	struct wr seed = { .data = NULL };
	struct img img;

	img_init(&img, gc64 ? &lj_offsets_table[0].offsets : &img_non_gc64);
	world_make(&img);
	wr_u8(&seed, gc64);
	wr_bytes(&seed, img.wr.data, img.wr.size);
	img_fini(&img);
	return seed;
}

static void mutate(struct wr *wr, uint32_t *state)
{
	uint32_t n = 1 + next_random(state) % 32;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t r = next_random(state);
		size_t at = 1 + next_random(state) % (wr->size - 9);
		size_t from = 1 + next_random(state) % (wr->size - 9);

		if (r % 4 == 0) /* a reference, a length, an instruction */
			memmove(wr->data + at, wr->data + from, 4 + r / 4 % 5);
		else if (r % 4 == 1)
			memset(wr->data + at, r & 8 ? 0xff : 0, 1 + r / 16 % 8);
		else
			wr->data[at] = (uint8_t)(r >> 24);
	}
	if (next_random(state) % 8 == 0)
		wr->size = 1 + next_random(state) % wr->size;
}

int main(int argc, char **argv)
{
	struct wr seeds[2] = { make_seed(false), make_seed(true) };
	uint32_t state = 2463534242U;
	long rounds = 20000;

	if (argc == 3 && !strcmp(argv[1], "-n"))
		rounds = atol(argv[2]);
	for (int i = 1; i < argc && *argv[i] != '-' && argc != 3; i++)
		replay(argv[i]);
	for (long i = 0; i < rounds && (argc == 1 || argc == 3); i++) {
		struct wr wr = { .data = NULL };

		wr_bytes(&wr, seeds[i & 1].data, seeds[i & 1].size);
		mutate(&wr, &state);
		LLVMFuzzerTestOneInput(wr.data, wr.size);
		free(wr.data);
	}
	free(seeds[0].data);
	free(seeds[1].data);
	return 0;
}
#endif
