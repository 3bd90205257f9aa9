/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proof of offsets on live VMs that wait (tests/lua/proof.lua): right offsets
 * hold; those that no table gives are found; and each field that is moved to
 * the place beside it is caught, by the code or by the VM, but for those in a
 * list here. Run in the top folder of the source tree.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fields.h"
#include "layout.h"
#include "lb_test.h"
#include "luajit.h"
#include "offsets.h"
#include "proc.h"
#include "proof.h"
#include "vms.h"

#define PROGRAM	 "tests/lua/proof.lua"
#define N	 LB_SCAN_N_FIELDS
#define UPSTREAM ".output/deb/upstream/usr/bin/luajit"

struct live {
	pid_t pid;
	int stdin_fd;
	struct lb_proc *proc;
	struct lb_luajit luajit;
	struct lb_scan scan;
	struct lb_offsets_source source; /* of table and code */
	struct lb_vms vms;
};

static uint32_t *values_of(struct lj_offsets *offsets)
{
	return (uint32_t *)offsets;
}

static int read_live(void *arg, uint64_t addr, void *buf, size_t size)
{
	return lb_proc_read(arg, addr, buf, size);
}

static bool start(struct live *live, const char *path)
{
	char *const args[] = { (char *)path, PROGRAM, NULL };
	int to[2], from[2];
	char line[16] = "";

	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
		return false;
	live->pid = fork();
	if (!live->pid) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		execv(args[0], args);
		_exit(127);
	}
	close(to[0]);
	close(from[1]);
	live->stdin_fd = to[1];

	FILE *out = fdopen(from[0], "r");
	bool ready = out && fgets(line, sizeof(line), out) &&
		     !strcmp(line, "ready\n");

	if (out)
		fclose(out);
	return ready;
}

static void stop(struct live *live)
{
	lb_proc_free(live->proc);
	close(live->stdin_fd);
	waitpid(live->pid, NULL, 0);
}

static bool find_vm(struct live *live)
{
	const struct lb_proc_map *maps;
	size_t n = lb_proc_maps(live->proc, &maps);

	for (size_t i = 0; i < n; i++) {
		struct lb_elf *elf;
		uint64_t bias = 0;
		int fd;

		if (!maps[i].exec || maps[i].kind != LB_MAP_FILE ||
		    lb_proc_open_map(live->proc, &maps[i], &fd))
			continue;

		bool found = !lb_elf_open_fd(fd, maps[i].path, &elf) &&
			     !lb_luajit_find(elf, &live->luajit);

		close(fd);
		if (!found)
			continue;
		CHECK_INT(lb_elf_bias(elf, maps[i].start, maps[i].off, &bias),
			  0);
		CHECK_INT(lb_scan_offsets(elf, &live->luajit, &live->scan), 0);
		CHECK_INT(lb_offsets_join(&live->luajit, &live->scan,
					  &live->source),
			  0);
		CHECK_INT(lb_vms_find(live->proc, bias + live->luajit.vm_vaddr,
				      live->luajit.vm_size,
				      &live->source.offsets, &live->vms),
			  0);
		lb_elf_free(elf);
		return true;
	}
	return false;
}

typedef void (*live_fn)(struct live *live);

static void with(const char *path, live_fn fn)
{
	struct live live = { .pid = 0 };

	if (access(path, X_OK)) {
		SKIP("luajit: not installed, see scripts/install-deps and "
		     "scripts/fetch-debs");
		return;
	}
	CHECK(start(&live, path));
	CHECK_INT(lb_proc_open(live.pid, &live.proc), 0);
	if (find_vm(&live)) {
		CHECK_INT(live.vms.n, 1);
		if (live.vms.n)
			fn(&live);
	} else {
		CHECK(!"there is a VM");
	}
	stop(&live);
}

static int prove(const struct live *live, struct lb_offsets_source *source,
		 struct lb_proof *proof)
{
	return lb_proof_run(read_live, live->proc, live->vms.g_addrs[0], source,
			    proof);
}

/* ---- right offsets ---- */

static void check_right(struct live *live)
{
	struct lb_offsets_source source = live->source;
	struct lb_proof proof;

	CHECK_INT(prove(live, &source, &proof), 0);
	CHECK(!memcmp(&source, &live->source, sizeof(source)));
	CHECK_INT(proof.main_l_addr + source.offsets.l_size, proof.g_addr);
	for (unsigned int i = 0; i < LB_CHECK_MAX; i++) {
		if (proof.states[i] != LB_PROOF_HELD)
			fprintf(stderr, "%s: %s\n", lb_proof_check_text(i),
				proof.why[i] ? proof.why[i] : "not seen");
		CHECK_INT(proof.states[i], LB_PROOF_HELD);
	}
}

static void test_right_offsets(void)
{
	with("/usr/bin/luajit", check_right);
}

static void test_right_offsets_upstream(void)
{
	with(UPSTREAM, check_right);
}

/* ---- a build that is in no table ---- */

/* Fields without any source then. */
static bool has_no_source(size_t field)
{
	return field == LB_SCAN_FIELD(vm_record) ||
	       field == LB_SCAN_FIELD(vm_opt) || field == LB_SCAN_FIELD(vm_asm);
}

static void check_found(struct live *live)
{
	struct lb_luajit marks = live->luajit;
	struct lb_offsets_source source;
	struct lb_proof proof;
	uint32_t n = 0;

	marks.static_dispatch += 8; /* so that no entry has them */
	CHECK_INT(lb_offsets_join(&marks, &live->scan, &source), 0);
	CHECK(!source.entry_name);
	CHECK_INT(prove(live, &source, &proof), 0);
	for (size_t i = 0; i < N; i++) {
		uint32_t got = values_of(&source.offsets)[i];
		uint32_t want = values_of(&live->source.offsets)[i];

		if (live->scan.known[i])
			CHECK_INT(source.from[i], LB_FROM_SCAN);
		else if (has_no_source(i))
			CHECK_INT(source.from[i], LB_FROM_NONE);
		else
			CHECK_INT(source.from[i], LB_FROM_LIVE);
		n += source.from[i] == LB_FROM_LIVE;
		if (i == LB_SCAN_FIELD(g_n_gcroot)) /* room for so many */
			CHECK(got >= want && got <= want + 2);
		else if (source.from[i])
			CHECK_INT(got, want);
	}
	CHECK_INT(n, N - 3 - live->scan.n_known);
}

static void test_build_in_no_table(void)
{
	with("/usr/bin/luajit", check_found);
}

static void test_build_in_no_table_upstream(void)
{
	with(UPSTREAM, check_found);
}

/* ---- moved fields ---- */

/*
 * What no look at a VM can tell. The code shows none of them either: they are
 * taken only where the table has them, which is made from debug info.
 */
static const size_t unseen[] = {
	/* too many: those behind are looked at, and are none; too few: one of
	 * 38 is not looked at for names */
	LB_SCAN_FIELD(g_n_gcroot),
	/* numbers of states that the compiler is in for microseconds */
	LB_SCAN_FIELD(vm_record),
	LB_SCAN_FIELD(vm_opt),
	LB_SCAN_FIELD(vm_asm),
};

static bool is_unseen(size_t field, int64_t by)
{
	/* topslot, a small number, may pass for a kind of link */
	if (field == LB_SCAN_FIELD(tr_linktype) && by < 0)
		return true;
	for (size_t i = 0; i < sizeof(unseen) / sizeof(unseen[0]); i++)
		if (unseen[i] == field)
			return true;
	return false;
}

/* Bytes from a member to the one beside it. */
static uint32_t step_of(const struct live *live, size_t field)
{
	static const size_t bytes[] = {
		LB_SCAN_FIELD(sn_nslots),   LB_SCAN_FIELD(sn_topslot),
		LB_SCAN_FIELD(sn_nent),	    LB_SCAN_FIELD(sn_count),
		LB_SCAN_FIELD(tr_linktype), LB_SCAN_FIELD(pt_sizeuv),
		LB_SCAN_FIELD(g_n_gcroot),  LB_SCAN_FIELD(fn_nupvalues),
	};
	static const size_t words[] = {
		LB_SCAN_FIELD(tr_root),	 LB_SCAN_FIELD(tr_spadjust),
		LB_SCAN_FIELD(tr_nsnap), LB_SCAN_FIELD(sn_ref),
		LB_SCAN_FIELD(sn_mcofs), LB_SCAN_FIELD(sn_mapofs_size),
	};
	static const size_t refs[] = {
		LB_SCAN_FIELD(g_mainthref), LB_SCAN_FIELD(g_gcroot),
		LB_SCAN_FIELD(l_env),	    LB_SCAN_FIELD(pt_chunkname),
		LB_SCAN_FIELD(pt_lineinfo), LB_SCAN_FIELD(pt_uvinfo),
		LB_SCAN_FIELD(pt_varinfo),  LB_SCAN_FIELD(tr_startpt),
		LB_SCAN_FIELD(tr_startpc),  LB_SCAN_FIELD(tr_snap),
		LB_SCAN_FIELD(tr_snapmap),  LB_SCAN_FIELD(tr_ir),
	};

	for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++)
		if (bytes[i] == field)
			return 1;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (words[i] == field)
			return 2;
	for (size_t i = 0; i < sizeof(refs) / sizeof(refs[0]); i++)
		if (refs[i] == field)
			return live->luajit.gc64 ? 8 : 4;
	return field == LB_SCAN_FIELD(g_registry) ||
			       field == LB_SCAN_FIELD(l_size) ||
			       field == LB_SCAN_FIELD(j_mcarea) ||
			       field == LB_SCAN_FIELD(j_szmcarea)
		       ? 8
		       : 4;
}

/* Return: what caught it, NULL if nothing did. */
static const char *caught_by(const struct live *live, size_t field, int64_t by)
{
	static char text[256];
	struct lb_offsets_source source = live->source;
	struct lb_proof proof;
	uint32_t *value = &values_of(&source.offsets)[field];
	size_t other;

	if (live->scan.known[field])
		return "code"; /* see test_choose.c */
	*value = (uint32_t)(*value + by);
	if (!lb_offsets_apart(&source.offsets, field, &other)) {
		snprintf(text, sizeof(text), "same place as %s",
			 lb_fields[other].name);
		return text;
	}
	if (prove(live, &source, &proof) != -EBADMSG)
		return NULL;
	lb_proof_explain(&proof, text, sizeof(text));
	return text;
}

static void check_moved(struct live *live)
{
	bool verbose = getenv("LB_VERBOSE");

	for (size_t i = 0; i < N; i++) {
		if (values_of(&live->source.offsets)[i] == LJ_OFFSETS_NONE)
			continue;
		for (int64_t sign = -1; sign <= 1; sign += 2) {
			int64_t by = sign * step_of(live, i);
			const char *by_what;

			if (values_of(&live->source.offsets)[i] + by < 0)
				continue;
			by_what = caught_by(live, i, by);
			if (verbose)
				printf("%-16s %+3d %s\n", lb_fields[i].name,
				       (int)by, by_what ? by_what : "nothing");
			if (!by_what != is_unseen(i, by))
				fprintf(stderr, "%s %+d: %s\n",
					lb_fields[i].name, (int)by,
					by_what ? by_what : "nothing");
			CHECK_INT(!by_what, is_unseen(i, by));
		}
	}
}

static void test_each_field_moved(void)
{
	with("/usr/bin/luajit", check_moved);
}

static void test_each_field_moved_upstream(void)
{
	with(UPSTREAM, check_moved);
}

/* ---- no VM ---- */

static void check_elsewhere(struct live *live)
{
	struct lb_offsets_source source = live->source;
	struct lb_proof proof;
	uint64_t g_addr = live->vms.g_addrs[0];

	CHECK_INT(lb_proof_run(read_live, live->proc, g_addr + 8, &source,
			       &proof),
		  -ENOENT);
	CHECK_INT(lb_proof_run(read_live, live->proc, 0, &source, &proof),
		  -ENOENT);
	CHECK_INT(lb_proof_run(read_live, live->proc, UINT64_MAX - 7, &source,
			       &proof),
		  -ENOENT);
	CHECK(!memcmp(&source, &live->source, sizeof(source)));
}

static void test_where_no_vm_is(void)
{
	with("/usr/bin/luajit", check_elsewhere);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_right_offsets),
		LB_TEST(test_right_offsets_upstream),
		LB_TEST(test_build_in_no_table),
		LB_TEST(test_build_in_no_table_upstream),
		LB_TEST(test_each_field_moved),
		LB_TEST(test_each_field_moved_upstream),
		LB_TEST(test_where_no_vm_is),
	};

	return LB_TEST_MAIN(cases);
}
