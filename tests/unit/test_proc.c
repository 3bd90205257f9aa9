/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc of a process: text with known answers, and this process itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc.h"
#include "lb_test.h"

/* ---- maps ---- */

static struct lb_proc_maps parse(const char *text)
{
	struct lb_proc_maps maps = { 0 };

	CHECK_INT(lb_proc_parse_maps(text, strlen(text), &maps), 0);
	return maps;
}

static void test_maps_line(void)
{
	struct lb_proc_maps maps =
		parse("7f0011223000-7f0011224000 r-xp 0001f000 fe:a2 18624  "
		      "                    /usr/lib/libx.so.1\n");

	CHECK_INT(maps.n, 1);

	const struct lb_proc_map *map = &maps.maps[0];

	CHECK_INT(map->start, 0x7f0011223000);
	CHECK_INT(map->end, 0x7f0011224000);
	CHECK_INT(map->off, 0x1f000);
	CHECK_INT(map->dev_major, 0xfe);
	CHECK_INT(map->dev_minor, 0xa2);
	CHECK_INT(map->ino, 18624);
	CHECK(map->readable && !map->writable && map->exec && !map->deleted);
	CHECK_INT(map->kind, LB_MAP_FILE);
	CHECK_STR(map->path, "/usr/lib/libx.so.1");
	lb_proc_maps_fini(&maps);
}

static void test_maps_paths(void)
{
	static const struct {
		const char *tail; /* of the line, from the inode on */
		enum lb_map_kind kind;
		const char *path;
		bool deleted;
	} cases[] = {
		{ "0", LB_MAP_ANON, "", false },
		{ "0 ", LB_MAP_ANON, "", false },
		{ "0                   [heap]", LB_MAP_ANON, "[heap]", false },
		{ "0                   [vdso]", LB_MAP_VDSO, "[vdso]", false },
		{ "0                   [vvar]", LB_MAP_ANON, "[vvar]", false },
		{ "0                   [vsyscall]", LB_MAP_VSYSCALL,
		  "[vsyscall]", false },
		{ "0                   [anon:x (deleted)]", LB_MAP_ANON,
		  "[anon:x (deleted)]", false },
		{ "12                  anon_inode:[perf_event]", LB_MAP_ANON,
		  "anon_inode:[perf_event]", false },
		{ "12                  /a b/c", LB_MAP_FILE, "/a b/c", false },
		{ "12                  /a\\012b", LB_MAP_FILE, "/a\nb", false },
		{ "12                  /a\\0123", LB_MAP_FILE, "/a\n3", false },
		{ "12                  /a\\01", LB_MAP_FILE, "/a\\01", false },
		{ "12                  /lib.so (deleted)", LB_MAP_FILE,
		  "/lib.so", true },
		{ "12                  /memfd:jit (deleted)", LB_MAP_FILE,
		  "/memfd:jit", true },
		{ "12                  / (deleted)", LB_MAP_FILE, "/", true },
		{ "12                  /x (deleted) (deleted)", LB_MAP_FILE,
		  "/x (deleted)", true },
		{ "0                   //deleted", LB_MAP_ANON, "//deleted",
		  false },
		{ "12                  /x\177\377;", LB_MAP_FILE, "/x\177\377;",
		  false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[256];

		snprintf(text, sizeof(text), "1000-2000 rw-p 0 00:00 %s\n",
			 cases[i].tail);

		struct lb_proc_maps maps = parse(text);

		CHECK_INT(maps.n, 1);
		CHECK_INT(maps.maps[0].kind, cases[i].kind);
		CHECK_STR(maps.maps[0].path, cases[i].path);
		CHECK_INT(maps.maps[0].deleted, cases[i].deleted);
		lb_proc_maps_fini(&maps);
	}
}

static void test_maps_bad_lines_are_left_out(void)
{
	struct lb_proc_maps maps =
		parse("\n"
		      "1000-2000\n"
		      "1000-2000 r-xp\n"
		      "1000-2000 r-xp 0 00:00\n"
		      "1000 2000 r-xp 0 00:00 0\n"
		      "2000-1000 r-xp 0 00:00 0\n"
		      "2000-2000 r-xp 0 00:00 0\n"
		      "1000-2000 r-xp 0 00:00 12x\n"
		      "1ffffffffffffffff-2ffffffffffffffff r-xp 0 00:00 0\n"
		      "1000-2000 r-xp 0 1ffffffff:00 0\n"
		      "1000-3000 r-xp 0 00:00 0 /good\n"
		      "2000-4000 r-xp 0 00:00 0 /overlaps\n"
		      "3000-4000 rw-p 0 00:00 0 /last without a newline");

	CHECK_INT(maps.n, 2);
	CHECK_STR(maps.maps[0].path, "/good");
	CHECK_STR(maps.maps[1].path, "/last without a newline");
	lb_proc_maps_fini(&maps);
	maps = parse("");
	CHECK_INT(maps.n, 0);
	lb_proc_maps_fini(&maps);
}

static void test_maps_cut_at_each_byte(void)
{
	static const char text[] =
		"1000-2000 r-xp 00000000 fe:00 18624   /a\\012b (deleted)\n"
		"ffffffffff600000-ffffffffff601000 --xp 0 00:00 0 [vsyscall]\n";

	for (size_t size = 0; size <= strlen(text); size++) {
		char *copy = malloc(size + 1); /* an end that is watched */
		struct lb_proc_maps maps;

		memcpy(copy, text, size);
		CHECK_INT(lb_proc_parse_maps(copy, size, &maps), 0);
		CHECK(maps.n <= 2);
		lb_proc_maps_fini(&maps);
		free(copy);
	}
}

static void test_maps_many_lines(void)
{
	const size_t n = 200000;
	char *text = malloc(n * 64);
	size_t size = 0;
	struct lb_proc_maps maps;

	for (size_t i = 0; i < n; i++)
		size += (size_t)snprintf(text + size, 64,
					 "%zx000-%zx800 r-xp 0 00:00 1 /%zu\n",
					 i + 1, i + 1, i);
	CHECK_INT(lb_proc_parse_maps(text, size, &maps), 0);
	CHECK_INT(maps.n, n);
	CHECK_STR(maps.maps[n - 1].path, "/199999");
	lb_proc_maps_fini(&maps);
	free(text);
}

static void test_maps_random_bytes(void)
{
	static const char alphabet[] = "0123456789af-rwxp: \n/\\()";
	char text[512];
	unsigned int seed = 1;

	for (int round = 0; round < 20000; round++) {
		struct lb_proc_maps maps;

		for (size_t i = 0; i < sizeof(text); i++) {
			seed = seed * 1103515245 + 12345;
			text[i] =
				alphabet[(seed >> 16) % (sizeof(alphabet) - 1)];
		}
		CHECK_INT(lb_proc_parse_maps(text, sizeof(text), &maps), 0);
		lb_proc_maps_fini(&maps);
	}
}

/* ---- stat ---- */

static void test_stat(void)
{
#define TAIL " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18"
	static const struct {
		const char *text;
		int want;
		uint64_t ticks;
	} cases[] = {
		{ "7 (sh)" TAIL " 4711 20\n", 0, 4711 },
		{ "7 (a) S 1 (b) c)" TAIL " 4711 20\n", 0, 4711 },
		{ "7 (a\nb)" TAIL " 18446744073709551615\n", 0, UINT64_MAX },
		{ "7 (a)" TAIL " 18446744073709551616\n", -EBADMSG, 0 },
		{ "7 (a)" TAIL, -EBADMSG, 0 },
		{ "7 (a)" TAIL " x", -EBADMSG, 0 },
		{ "7 a S", -EBADMSG, 0 },
		{ "", -EBADMSG, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t ticks = 0;

		CHECK_INT(lb_proc_parse_stat(cases[i].text, &ticks),
			  cases[i].want);
		CHECK(ticks == cases[i].ticks);
	}
}

/* ---- this process ---- */

static void test_self(void)
{
	struct lb_proc *proc;
	struct stat want, got;
	int fd;

	CHECK_INT(lb_proc_open(getpid(), &proc), 0);
	CHECK_INT(lb_proc_pid(proc), getpid());
	CHECK(lb_proc_start_ticks(proc) > 0);

	const struct lb_proc_map *map =
		lb_proc_map_at(proc, (uint64_t)(uintptr_t)&test_self);

	CHECK(map && map->exec && map->kind == LB_MAP_FILE);
	CHECK_INT(lb_proc_open_map(proc, map, &fd), 0);
	CHECK_INT(fstat(fd, &got), 0);
	CHECK_INT(stat("/proc/self/exe", &want), 0);
	CHECK(got.st_ino == want.st_ino && got.st_dev == want.st_dev);
	close(fd);
	CHECK(!lb_proc_map_at(proc, 0));
	CHECK(!lb_proc_map_at(proc, UINT64_MAX));
	lb_proc_free(proc);
	lb_proc_free(NULL);
}

static void test_vdso(void)
{
	const struct lb_proc_map *maps;
	struct lb_proc *proc;
	char magic[4] = { 0 };
	int fd, n = 0;

	CHECK_INT(lb_proc_open(getpid(), &proc), 0);
	for (size_t i = 0; i < lb_proc_maps(proc, &maps); i++) {
		if (maps[i].kind != LB_MAP_VDSO)
			continue;
		n++;
		CHECK_INT(lb_proc_open_map(proc, &maps[i], &fd), -ENOENT);
		CHECK_INT(lb_proc_read(proc, maps[i].start, magic, 4), 0);
		CHECK(!memcmp(magic, "\177ELF", 4));
	}
	CHECK_INT(n, 1);
	lb_proc_free(proc);
}

/* A file with a newline in its name is mapped, unlinked, unmapped. */
static void test_mapping_comes_and_goes(void)
{
	char path[] = "/tmp/lb_test\nXXXXXX";
	int file = mkstemp(path);
	struct lb_proc *proc;
	bool changed = true;
	char byte = 0;
	int fd = -1;

	CHECK(file >= 0);
	CHECK_INT(write(file, "!", 1), 1);
	CHECK_INT(lb_proc_open(getpid(), &proc), 0);
	CHECK_INT(lb_proc_refresh(proc, &changed), 0);
	CHECK(!changed);

	void *addr =
		mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);

	CHECK(addr != MAP_FAILED);
	CHECK_INT(lb_proc_refresh(proc, &changed), 0);
	CHECK(changed);

	const struct lb_proc_map *map =
		lb_proc_map_at(proc, (uint64_t)(uintptr_t)addr);

	CHECK(map && !map->deleted && map->exec);
	if (map) {
		CHECK_STR(map->path, path);
		CHECK_INT(lb_proc_open_map(proc, map, &fd), 0);
		close(fd);
	}
	unlink(path);
	CHECK_INT(lb_proc_refresh(proc, &changed), 0);
	CHECK(!changed);
	map = lb_proc_map_at(proc, (uint64_t)(uintptr_t)addr);
	CHECK(map && map->deleted);
	if (map) {
		struct lb_proc_map other = *map;

		CHECK_STR(map->path, path);

		int err = lb_proc_open_map(proc, map, &fd);

		if (!err) { /* through map_files, which needs privileges */
			CHECK_INT(read(fd, &byte, 1), 1);
			CHECK_INT(byte, '!');
			close(fd);
		} else {
			CHECK_INT(err, -ENOENT);
		}

		/* another file that has the name now */
		int new_file = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);

		other.start++; /* not in map_files */
		CHECK_INT(lb_proc_open_map(proc, &other, &fd), -ESTALE);
		close(new_file);
		unlink(path);
	}
	munmap(addr, 4096);
	CHECK_INT(lb_proc_refresh(proc, &changed), 0);
	CHECK(changed);
	lb_proc_free(proc);
	close(file);
}

static void test_open_path(void)
{
	struct lb_proc *proc;
	char dir[] = "/tmp/lb_test_XXXXXX";
	char path[64];
	int fd;

	CHECK_INT(lb_proc_open(getpid(), &proc), 0);
	CHECK_INT(lb_proc_open_path(proc, "/proc/version", &fd), 0);
	close(fd);
	/* `..` does not lead out of the root of the process */
	CHECK_INT(lb_proc_open_path(proc, "/../../proc/version", &fd), 0);
	close(fd);
	CHECK_INT(lb_proc_open_path(proc, "/proc/nothing", &fd), -ENOENT);
	CHECK_INT(lb_proc_open_path(proc, "/dev/null", &fd), -ENOENT);
	CHECK_INT(lb_proc_open_path(proc, "/", &fd), -ENOENT);
	/* one that would wait for a writer */
	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/fifo", dir);
	CHECK_INT(mkfifo(path, 0600), 0);
	CHECK_INT(lb_proc_open_path(proc, path, &fd), -ENOENT);
	unlink(path);
	rmdir(dir);
	lb_proc_free(proc);
}

static void test_read(void)
{
	const size_t page = 4096;
	char *addr = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *copy = malloc(3 * page);
	uint64_t at = (uint64_t)(uintptr_t)addr;
	struct lb_proc *proc;

	memset(addr, 'a', 2 * page);
	munmap(addr + 2 * page, page);
	CHECK_INT(lb_proc_open(getpid(), &proc), 0);
	CHECK_INT(lb_proc_read(proc, at, copy, 2 * page), 0);
	CHECK(!memcmp(copy, addr, 2 * page));
	CHECK_INT(lb_proc_read(proc, at, copy, 2 * page + 1), -EFAULT);
	CHECK_INT(lb_proc_read(proc, at + 2 * page, copy, 1), -EFAULT);
	CHECK_INT(lb_proc_read(proc, at + 2 * page, copy, 0), 0);
	CHECK_INT(lb_proc_read(proc, 8, copy, 8), -EFAULT);
	CHECK_INT(lb_proc_read(proc, UINT64_MAX - 3, copy, 8), -EFAULT);
	lb_proc_free(proc);
	munmap(addr, 2 * page);
	free(copy);
}

/* The handle of a process that has ended does not turn into another one. */
static void test_process_gone(void)
{
	struct lb_proc *proc;
	int ready[2];
	bool changed;
	char byte;
	pid_t pid;

	CHECK_INT(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "a) S 1 (b");
		if (write(ready[1], "!", 1) == 1)
			pause();
		_exit(1);
	}
	CHECK_INT(read(ready[0], &byte, 1), 1);

	char comm[16];

	CHECK_INT(lb_proc_comm(pid, comm), 0);
	CHECK_STR(comm, "a) S 1 (b");
	CHECK_INT(lb_proc_open(pid, &proc), 0);
	CHECK(lb_proc_start_ticks(proc) > 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	CHECK_INT(lb_proc_refresh(proc, &changed), -ESRCH);
	CHECK_INT(lb_proc_read(proc, (uint64_t)(uintptr_t)&byte, &byte, 1),
		  -ESRCH);
	lb_proc_free(proc);
	CHECK_INT(lb_proc_open(pid, &proc), -ESRCH);
	CHECK_INT(lb_proc_comm(pid, comm), -ESRCH);
	CHECK_INT(lb_proc_open(-1, &proc), -ESRCH);
	CHECK_INT(lb_proc_open(0, &proc), -ESRCH);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_maps_line),
		LB_TEST(test_maps_paths),
		LB_TEST(test_maps_bad_lines_are_left_out),
		LB_TEST(test_maps_cut_at_each_byte),
		LB_TEST(test_maps_many_lines),
		LB_TEST(test_maps_random_bytes),
		LB_TEST(test_stat),
		LB_TEST(test_self),
		LB_TEST(test_vdso),
		LB_TEST(test_mapping_comes_and_goes),
		LB_TEST(test_open_path),
		LB_TEST(test_read),
		LB_TEST(test_process_gone),
	};

	return LB_TEST_MAIN(cases);
}
