/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of Lua functions against live interpreters: the program
 * tests/lua/names_defs.lua says where its functions are and what each is
 * called; for calls, what the VM itself calls them.
 *
 * And against the source of all Lua files that this machine has: a function
 * that begins on a line such as `function M.f(` has that name.
 *
 * LB_LUAJIT (default /usr/bin/luajit) and LB_LUAJIT_UPSTREAM name the
 * interpreters. Run in the top folder of the source tree.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "elf.h"
#include "lb_test.h"
#include "luajit.h"
#include "names.h"
#include "offsets.h"
#include "proc.h"
#include "proto.h"

#define PROGRAM	  "tests/lua/names_defs.lua"
#define LINES_MAX 512

struct line { /* what the program said */
	char kind;
	uint64_t addr;
	char name[128];
	unsigned int first_line;
	uint64_t caller;
	char pos[512];
	char path[256];
};

struct live {
	pid_t pid;
	int stdin_fd;
	struct lb_proc *proc;
	struct lj_offsets off;
	struct line lines[LINES_MAX];
	size_t n_lines;
	size_t n_reads;
};

static int read_live(void *arg, uint64_t addr, void *buf, size_t size)
{
	struct live *live = arg;

	live->n_reads++;
	return lb_proc_read(live->proc, addr, buf, size);
}

/* @args: luajit, program, ..., NULL */
static void start(char *const *args, struct live *live, FILE **out_ret)
{
	int to[2], from[2];

	memset(live, 0, sizeof(*live));
	if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) {
		perror("pipe");
		exit(1);
	}
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
	*out_ret = fdopen(from[0], "r");
}

static void stop(struct live *live)
{
	lb_proc_free(live->proc);
	close(live->stdin_fd);
	waitpid(live->pid, NULL, 0);
}

static void parse_line(struct live *live, char *text)
{
	struct line *line = &live->lines[live->n_lines];
	char *save, *field = strtok_r(text, "\t\n", &save);

	if (!field || live->n_lines == LINES_MAX)
		return;
	memset(line, 0, sizeof(*line));
	line->kind = *field;
	for (int i = 1; (field = strtok_r(NULL, "\t\n", &save)); i++) {
		if (i == 1)
			line->addr = strtoull(field, NULL, 16);
		else if (i == 2)
			snprintf(line->name, sizeof(line->name), "%s", field);
		else if (i == 3)
			line->first_line = (unsigned int)atoi(field);
		else if (i == 4 && line->kind == 'M')
			snprintf(line->path, sizeof(line->path), "%s", field);
		else if (i == 4)
			line->caller = strtoull(field, NULL, 16);
		else if (i == 5)
			snprintf(line->pos, sizeof(line->pos), "%s", field);
	}
	live->n_lines++;
}

static bool read_lines(struct live *live, FILE *out)
{
	char text[1024];
	bool ready = false;

	while (!ready && fgets(text, sizeof(text), out)) {
		ready = !strcmp(text, "ready\n");
		if (!ready)
			parse_line(live, text);
	}
	fclose(out);
	return ready;
}

static bool find_offsets(struct live *live)
{
	const struct lb_proc_map *maps;
	size_t n = lb_proc_maps(live->proc, &maps);
	bool found = false;

	for (size_t i = 0; i < n && !found; i++) {
		struct lb_luajit luajit;
		struct lb_elf *elf;
		const char *name;
		int fd;

		if (!maps[i].exec || maps[i].kind != LB_MAP_FILE ||
		    lb_proc_open_map(live->proc, &maps[i], &fd))
			continue;
		if (!lb_elf_open_fd(fd, maps[i].path, &elf)) {
			found = !lb_luajit_find(elf, &luajit) &&
				!lb_offsets_find(&luajit, &live->off, &name);
			lb_elf_free(elf);
		}
		close(fd);
	}
	return found;
}

/* False: skipped or failed, with the reason given. */
static bool setup(struct live *live, char *const *args)
{
	FILE *out;

	if (access(args[0], X_OK)) {
		SKIP("no luajit");
		return false;
	}
	start(args, live, &out);
	if (!read_lines(live, out)) {
		CHECK(!"the program said ready");
		stop(live);
		return false;
	}
	CHECK_INT(lb_proc_open(live->pid, &live->proc), 0);
	if (!find_offsets(live)) {
		CHECK(!"offsets were found");
		stop(live);
		return false;
	}
	return true;
}

static uint64_t read_u64(struct live *live, uint64_t addr)
{
	uint64_t value = 0;

	CHECK_INT(read_live(live, addr, &value, sizeof(value)), 0);
	return value;
}

static uint32_t read_u32(struct live *live, uint64_t addr)
{
	uint32_t value = 0;

	CHECK_INT(read_live(live, addr, &value, sizeof(value)), 0);
	return value;
}

/* The record that the kernel would send. */
static void make_rec(struct live *live, uint64_t proto_addr,
		     struct lb_proto_rec *rec)
{
	const struct lj_offsets *off = &live->off;

	memset(rec, 0, sizeof(*rec));
	rec->type = LB_REC_PROTO;
	rec->proto_addr = proto_addr;
	rec->chunk_addr = read_u64(live, proto_addr + off->pt_chunkname);
	rec->first_line = read_u32(live, proto_addr + off->pt_firstline);
	rec->num_line = read_u32(live, proto_addr + off->pt_numline);
	rec->size_bc = read_u32(live, proto_addr + off->pt_sizebc);
	rec->chunk_len = read_u32(live, rec->chunk_addr + off->str_len);
	rec->chunk_id = read_u32(live, rec->chunk_addr + off->str_id);
	rec->chunk_got =
		rec->chunk_len < LB_CHUNK_MAX ? rec->chunk_len : LB_CHUNK_MAX;
	CHECK_INT(read_live(live, rec->chunk_addr + off->str_size, rec->chunk,
			    rec->chunk_got),
		  0);
}

static uint64_t proto_of(struct live *live, uint64_t func_addr)
{
	return read_u64(live, func_addr + live->off.fn_pc) - live->off.pt_size;
}

static uint32_t add(struct live *live, struct lb_names *names,
		    uint64_t func_addr)
{
	struct lb_proto_rec rec;
	uint32_t id = 0;

	make_rec(live, proto_of(live, func_addr), &rec);
	CHECK_INT(lb_names_add_proto(names, &rec, &live->off, &id), 0);
	return id;
}

static struct lb_names *names_of(struct live *live)
{
	struct lb_names *names = NULL;

	CHECK_INT(lb_names_new(read_live, live, &names), 0);
	return names;
}

/* `name@chunk:line` has this name and this line? */
static bool text_is(const char *text, const char *name, unsigned int line)
{
	size_t n = strlen(name);
	const char *colon = strrchr(text, ':');

	return !strncmp(text, name, n) && text[n] == '@' && colon &&
	       (unsigned int)atoi(colon + 1) == line;
}

static void check_text(struct lb_names *names, uint32_t id,
		       const struct line *line, unsigned int *right,
		       unsigned int *total)
{
	const char *text = lb_names_proto_text(names, id, LB_LINE_UNKNOWN);

	(*total)++;
	if (text_is(text, line->name, line->first_line)) {
		(*right)++;
		return;
	}
	fprintf(stderr, "  %c %s:%u got %s\n", line->kind, line->name,
		line->first_line, text);
}

/* All lines of @kind, named with evidence of one sort. */
static void check_kind(struct live *live, struct lb_names *names, char kind)
{
	unsigned int right = 0, total = 0;

	for (size_t i = 0; i < live->n_lines; i++) {
		if (live->lines[i].kind != kind)
			continue;
		check_text(names, add(live, names, live->lines[i].addr),
			   &live->lines[i], &right, &total);
	}
	printf("  %c: %u of %u right\n", kind, right, total);
	CHECK(total > 2);
	CHECK_INT(right, total);
}

static uint64_t g_addr(struct live *live)
{
	for (size_t i = 0; i < live->n_lines; i++) {
		if (live->lines[i].kind == 'T')
			return read_u64(live, live->lines[i].addr +
						      live->off.l_glref);
	}
	return 0;
}

static void check_definitions(struct live *live)
{
	struct lb_names *names = names_of(live);

	check_kind(live, names, 'M');
	check_kind(live, names, 'D');
	lb_names_free(names);
}

static void scan(struct live *live, struct lb_names *names)
{
	struct timespec a, b;
	size_t before = live->n_reads;

	clock_gettime(CLOCK_MONOTONIC, &a);
	CHECK_INT(lb_names_scan_tables(names, g_addr(live), &live->off), 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("  scan: %zu reads, %.1f ms\n", live->n_reads - before,
	       (double)(b.tv_sec - a.tv_sec) * 1e3 +
		       (double)(b.tv_nsec - a.tv_nsec) / 1e6);
}

static void check_places(struct live *live)
{
	struct lb_names *names = names_of(live);

	scan(live, names);
	check_kind(live, names, 'P');
	lb_names_free(names);
}

static void check_fast(struct live *live)
{
	struct lb_names *names = names_of(live);
	unsigned int right = 0, total = 0;

	scan(live, names);
	for (size_t i = 0; i < live->n_lines; i++) {
		const struct line *line = &live->lines[i];
		char want[160];
		uint8_t ffid;
		const char *text;

		if (line->kind != 'B')
			continue;
		CHECK_INT(read_live(live, line->addr + live->off.fn_ffid, &ffid,
				    1),
			  0);
		text = lb_names_fast_text(names, g_addr(live), ffid);
		snprintf(want, sizeof(want), "%s@[builtin]", line->name);
		CHECK_STR(text, want);
		right += !strcmp(text, want);
		total++;
	}
	printf("  B: %u of %u right\n", right, total);
	CHECK(total > 10);
	lb_names_free(names);
}

/* Builtins in bytecode: with a scan by their full name, else without. */
static void check_bytecode_builtins(struct live *live)
{
	struct lb_names *names = names_of(live), *bare = names_of(live);
	unsigned int total = 0;

	scan(live, names);
	for (size_t i = 0; i < live->n_lines; i++) {
		const struct line *line = &live->lines[i];
		char want[160];

		if (line->kind != 'L')
			continue;
		snprintf(want, sizeof(want), "%s@[builtin]", line->name);
		CHECK_STR(lb_names_proto_text(names,
					      add(live, names, line->addr), 1),
			  want);
		CHECK_STR(lb_names_proto_text(bare, add(live, bare, line->addr),
					      1),
			  strchr(want, '.') + 1);
		total++;
	}
	CHECK(total > 2);
	lb_names_free(names);
	lb_names_free(bare);
}

/* The instruction of a line that calls: its last call, else its operator. */
static uint32_t calling_pos(const struct lj_offsets *off,
			    const struct lb_proto *proto, const char *list)
{
	uint32_t first = LB_POS_UNKNOWN, last = LB_POS_UNKNOWN;
	char *end;

	for (const char *p = list; *p; p = *end ? end + 1 : end) {
		uint32_t pos = (uint32_t)strtoul(p, &end, 10);
		unsigned int op;

		if (pos >= proto->size_bc)
			break;
		op = lb_proto_op(off, proto, pos);
		if (op >= off->bc_call && op <= off->bc_isnext)
			last = pos;
		else if (first == LB_POS_UNKNOWN && op != off->bc_mov &&
			 op != off->bc_uget &&
			 !(op >= off->bc_kstr && op < off->bc_knil))
			first = pos;
	}
	return last != LB_POS_UNKNOWN ? last : first;
}

static void check_call(struct live *live, const struct line *line,
		       unsigned int *right, unsigned int *total)
{
	struct lb_target target = { .read = read_live,
				    .read_arg = live,
				    .off = &live->off,
				    .budget = 100 };
	struct lb_names *names = names_of(live);
	uint32_t caller = add(live, names, line->caller);
	uint32_t callee = add(live, names, line->addr);
	struct line want = *line;
	struct lb_proto proto;

	if (!strcmp(want.name, "(for generator)"))
		strcpy(want.name, "for iterator");
	CHECK_INT(lb_proto_read(&target, proto_of(live, line->caller), &proto),
		  0);
	lb_names_add_call(names, caller,
			  calling_pos(&live->off, &proto, line->pos), callee);
	check_text(names, callee, &want, right, total);
	lb_proto_fini(&proto);
	lb_names_free(names);
}

static void check_calls(struct live *live)
{
	unsigned int right = 0, total = 0;

	for (size_t i = 0; i < live->n_lines; i++) {
		if (live->lines[i].kind == 'C')
			check_call(live, &live->lines[i], &right, &total);
	}
	printf("  C: %u of %u right\n", right, total);
	CHECK(total > 10);
	CHECK_INT(right, total);
}

/* ---- the source as oracle ---- */

struct source {
	struct live *live;
	struct lb_names *names;
	char **lines; /* of the file */
	size_t n_lines;
	unsigned int judged, right, anonymous, other;
	int depth;
};

static bool is_path(char c)
{
	return c == '_' || c == '.' || c == ':' || (c >= '0' && c <= '9') ||
	       (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static size_t copy_path(const char *text, char *out, size_t out_size)
{
	size_t n = 0;

	while (is_path(text[n]) && n + 1 < out_size)
		n++;
	memcpy(out, text, n);
	out[n] = '\0';
	return n;
}

/*
 * The name a line gives to the one function that begins on it.
 * *part_ret: what is before it in the path is not to be seen
 */
static bool name_in_line(const char *line, char *name, size_t size,
			 bool *part_ret)
{
	const char *at = strstr(line, "function"), *p;
	bool local;
	size_t n;

	*part_ret = false;
	if (!at || strstr(at + 8, "function") || strstr(line, "--"))
		return false;
	while (*line == ' ' || *line == '\t')
		line++;
	local = !strncmp(line, "local ", 6);
	line += local ? 6 : 0;
	if (line == at)
		return at[8] == ' ' && copy_path(at + 9, name, size);
	n = copy_path(line, name, size);
	p = line + n;
	while (*p == ' ')
		p++;
	if (!n || *p != '=' || p[1] == '=')
		return false;
	for (p++; *p == ' '; p++)
		;
	*part_ret = !local; /* in a table constructor, maybe */
	return p == at;
}

static void judge(struct source *source, const struct lb_proto *proto)
{
	struct lb_proto_rec rec;
	char name[128], got[512], *end;
	const char *line;
	uint32_t id = 0;
	bool part;

	make_rec(source->live, proto->addr, &rec);
	CHECK_INT(lb_names_add_proto(source->names, &rec, &source->live->off,
				     &id),
		  0);
	snprintf(got, sizeof(got), "%s",
		 lb_names_proto_text(source->names, id, LB_LINE_UNKNOWN));
	end = strchr(got, '@');
	if (end)
		*end = '\0';
	if (!proto->first_line || proto->first_line > source->n_lines)
		return;
	line = source->lines[proto->first_line - 1];
	if (!name_in_line(line, name, sizeof(name), &part)) {
		*(strcmp(got, "?") ? &source->other : &source->anonymous) += 1;
		return;
	}
	source->judged++;
	end = strrchr(name, '.');
	if (end && strstr(line, "(self"))
		*end = ':'; /* a method, however it is written */
	end = got;
	if (part && strlen(got) > strlen(name))
		end += strlen(got) - strlen(name);
	if (!strcmp(end, name) &&
	    (end == got || end[-1] == '.' || end[-1] == ':'))
		source->right++;
	else
		fprintf(stderr, "  %s, not %s: %s", got, name, line);
}

static int judge_child(void *arg, const struct lb_proto_child *child)
{
	struct source *source = arg;
	struct lb_target target = { .read = read_live,
				    .read_arg = source->live,
				    .off = &source->live->off,
				    .budget = 100000 };
	struct lb_proto proto;

	CHECK_INT(lb_proto_read(&target, child->addr, &proto), 0);
	judge(source, &proto);
	if (source->depth++ < 20)
		CHECK_INT(lb_proto_each_child(&target, &proto, judge_child,
					      source),
			  0);
	source->depth--;
	lb_proto_fini(&proto);
	return 0;
}

static void read_source(struct source *source, const char *path)
{
	FILE *file = fopen(path, "r");
	char *line = NULL;
	size_t room = 0;

	while (file && getline(&line, &room, file) > 0) {
		source->lines =
			realloc(source->lines,
				(source->n_lines + 1) * sizeof(*source->lines));
		source->lines[source->n_lines++] = strdup(line);
	}
	free(line);
	if (file)
		fclose(file);
}

static void judge_file(struct live *live, const struct line *main_line,
		       struct source *total)
{
	struct source source = { .live = live, .names = names_of(live) };
	struct lb_proto_child child = { .addr = proto_of(live,
							 main_line->addr) };

	read_source(&source, main_line->path);
	add(live, source.names, main_line->addr);
	judge_child(&source, &child);
	for (size_t i = 0; i < source.n_lines; i++)
		free(source.lines[i]);
	free(source.lines);
	lb_names_free(source.names);
	total->judged += source.judged;
	total->right += source.right;
	total->anonymous += source.anonymous;
	total->other += source.other;
}

static void check_sources(const char *luajit)
{
	static const char *const patterns[] = {
		"/usr/share/luajit-2.1*/jit/*.lua",
		"/usr/share/lua/5.1/*.lua",
		"/usr/share/lua/5.1/*/*.lua",
		"/usr/share/lua/5.1/*/*/*.lua",
		"/usr/share/nvim/runtime/lua/*.lua",
		"/usr/share/nvim/runtime/lua/*/*.lua",
		"/usr/share/nvim/runtime/lua/*/*/*.lua",
		"tests/lua/*.lua",
	};
	static struct live live;
	char *args[LINES_MAX] = { (char *)luajit,
				  (char *)"tests/lua/names_files.lua" };
	struct source total = { .judged = 0 };
	size_t n = 2;
	glob_t files = { .gl_pathc = 0 };

	if (!luajit) {
		SKIP("LB_LUAJIT_UPSTREAM is not set");
		return;
	}
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
		glob(patterns[i], i ? GLOB_APPEND : 0, NULL, &files);
	for (size_t i = 0; i < files.gl_pathc && n < LINES_MAX - 1; i++)
		args[n++] = files.gl_pathv[i];
	if (setup(&live, args)) {
		for (size_t i = 0; i < live.n_lines; i++)
			judge_file(&live, &live.lines[i], &total);
		stop(&live);
		printf("  source: %zu files, %u of %u right; of the others %u"
		       " anonymous, %u named\n",
		       live.n_lines, total.right, total.judged, total.anonymous,
		       total.other);
		CHECK(total.judged > 50);
		CHECK_INT(total.right, total.judged);
	}
	globfree(&files);
}

static void with_luajit(const char *luajit, void (*check)(struct live *live))
{
	static struct live live;
	char *args[] = { (char *)luajit, (char *)PROGRAM, NULL };

	if (!luajit) {
		SKIP("LB_LUAJIT_UPSTREAM is not set");
		return;
	}
	if (!setup(&live, args))
		return;
	check(&live);
	stop(&live);
}

static const char *system_luajit(void)
{
	const char *luajit = getenv("LB_LUAJIT");

	return luajit ? luajit : "/usr/bin/luajit";
}

static const char *upstream_luajit(void)
{
	return getenv("LB_LUAJIT_UPSTREAM");
}

static void test_definitions_live(void)
{
	with_luajit(system_luajit(), check_definitions);
}

static void test_definitions_live_upstream(void)
{
	with_luajit(upstream_luajit(), check_definitions);
}

static void test_places_live(void)
{
	with_luajit(system_luajit(), check_places);
}

static void test_places_live_upstream(void)
{
	with_luajit(upstream_luajit(), check_places);
}

static void test_calls_live(void)
{
	with_luajit(system_luajit(), check_calls);
}

static void test_calls_live_upstream(void)
{
	with_luajit(upstream_luajit(), check_calls);
}

static void test_fast_live(void)
{
	with_luajit(system_luajit(), check_fast);
}

static void test_fast_live_upstream(void)
{
	with_luajit(upstream_luajit(), check_fast);
}

static void test_bytecode_builtins_live(void)
{
	with_luajit(system_luajit(), check_bytecode_builtins);
}

static void test_bytecode_builtins_live_upstream(void)
{
	with_luajit(upstream_luajit(), check_bytecode_builtins);
}

static void test_sources_live(void)
{
	check_sources(system_luajit());
}

static void test_sources_live_upstream(void)
{
	check_sources(upstream_luajit());
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_definitions_live),
		LB_TEST(test_definitions_live_upstream),
		LB_TEST(test_places_live),
		LB_TEST(test_places_live_upstream),
		LB_TEST(test_calls_live),
		LB_TEST(test_calls_live_upstream),
		LB_TEST(test_fast_live),
		LB_TEST(test_fast_live_upstream),
		LB_TEST(test_bytecode_builtins_live),
		LB_TEST(test_bytecode_builtins_live_upstream),
		LB_TEST(test_sources_live),
		LB_TEST(test_sources_live_upstream),
	};

	return LB_TEST_MAIN(cases);
}
