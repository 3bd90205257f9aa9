/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process as /proc shows it.
 *
 * The directory /proc/PID stays open: a later process that gets the same PID
 * cannot be taken for this one, its files are simply gone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "buf.h"
#include "proc.h"

#define MAPS_SIZE_MAX (UINT64_C(512) << 20)
#define STAT_SIZE_MAX 4096

struct lb_proc {
	pid_t pid;
	int dir_fd; /* /proc/PID */
	uint64_t start_ticks;
	struct lb_proc_maps maps;
};

/* ---- text of /proc/PID/maps ---- */

static bool next_number(const char **pos, const char *end, unsigned int base,
			uint64_t *value_ret)
{
	const char *p = *pos;
	uint64_t value = 0;

	for (; p < end; p++) {
		unsigned int digit;

		if (*p >= '0' && *p <= '9')
			digit = (unsigned int)(*p - '0');
		else if (*p >= 'a' && *p <= 'f')
			digit = (unsigned int)(*p - 'a') + 10;
		else
			break;
		if (digit >= base)
			break;
		if (__builtin_mul_overflow(value, base, &value) ||
		    __builtin_add_overflow(value, digit, &value))
			return false;
	}
	if (p == *pos)
		return false;
	*pos = p;
	*value_ret = value;
	return true;
}

static bool next_char(const char **pos, const char *end, char c)
{
	if (*pos == end || **pos != c)
		return false;
	(*pos)++;
	return true;
}

/* The kernel escapes a newline, and nothing else, as \012. */
static char *unescape(const char *text, const char *end, char *out)
{
	while (text < end) {
		if (end - text >= 4 && !memcmp(text, "\\012", 4)) {
			*out++ = '\n';
			text += 4;
		} else {
			*out++ = *text++;
		}
	}
	return out;
}

static enum lb_map_kind kind_of(const struct lb_proc_map *map)
{
	if (!strcmp(map->path, "[vdso]"))
		return LB_MAP_VDSO;
	if (!strcmp(map->path, "[vsyscall]"))
		return LB_MAP_VSYSCALL;
	return map->path[0] == '/' && map->ino ? LB_MAP_FILE : LB_MAP_ANON;
}

/* Takes the path to @paths, NUL included. Return: the byte behind it. */
static char *parse_path(const char *pos, const char *end,
			struct lb_proc_map *map, char *paths)
{
	static const char suffix[] = " (deleted)";
	const size_t suffix_len = sizeof(suffix) - 1;

	while (pos < end && *pos == ' ')
		pos++;
	if ((size_t)(end - pos) > suffix_len && *pos == '/' &&
	    !memcmp(end - suffix_len, suffix, suffix_len)) {
		map->deleted = true;
		end -= suffix_len;
	}
	map->path = paths;
	paths = unescape(pos, end, paths);
	*paths++ = '\0';
	map->kind = kind_of(map);
	return paths;
}

/* START-END PERM OFF MAJOR:MINOR INO   PATH; all numbers but INO are hex. */
static bool parse_line(const char *pos, const char *end,
		       struct lb_proc_map *map, char **paths)
{
	uint64_t major_nr, minor_nr;

	memset(map, 0, sizeof(*map));
	if (!next_number(&pos, end, 16, &map->start) ||
	    !next_char(&pos, end, '-') ||
	    !next_number(&pos, end, 16, &map->end) ||
	    !next_char(&pos, end, ' ') || end - pos < 5 || pos[4] != ' ')
		return false;
	map->readable = pos[0] == 'r';
	map->writable = pos[1] == 'w';
	map->exec = pos[2] == 'x';
	pos += 5;
	if (!next_number(&pos, end, 16, &map->off) ||
	    !next_char(&pos, end, ' ') ||
	    !next_number(&pos, end, 16, &major_nr) ||
	    !next_char(&pos, end, ':') ||
	    !next_number(&pos, end, 16, &minor_nr) ||
	    !next_char(&pos, end, ' ') ||
	    !next_number(&pos, end, 10, &map->ino) ||
	    (pos < end && *pos != ' ') || map->start >= map->end ||
	    major_nr > UINT32_MAX || minor_nr > UINT32_MAX)
		return false;
	map->dev_major = (uint32_t)major_nr;
	map->dev_minor = (uint32_t)minor_nr;
	*paths = parse_path(pos, end, map, *paths);
	return true;
}

void lb_proc_maps_fini(struct lb_proc_maps *maps)
{
	free(maps->maps);
	free(maps->paths);
	memset(maps, 0, sizeof(*maps));
}

int lb_proc_parse_maps(const char *text, size_t size,
		       struct lb_proc_maps *maps_ret)
{
	const char *end = text + size;
	size_t n_lines = 1;

	for (const char *p = text; p < end; p++)
		n_lines += *p == '\n';

	/* a path with its NUL is shorter than its line */
	struct lb_proc_maps maps = {
		.maps = calloc(n_lines, sizeof(*maps.maps)),
		.paths = calloc(size + 1, 1),
	};
	char *paths = maps.paths;
	uint64_t last_end = 0;

	if (!maps.maps || !maps.paths) {
		lb_proc_maps_fini(&maps);
		return -ENOMEM;
	}
	while (text < end) {
		const char *eol = memchr(text, '\n', (size_t)(end - text));
		struct lb_proc_map *map = &maps.maps[maps.n];
		char *paths_before = paths;

		if (!eol)
			eol = end;
		/*
		 * The kernel does not freeze the list while we read it; a line
		 * that overlaps the one before is older or newer than that.
		 */
		if (!parse_line(text, eol, map, &paths) ||
		    map->start < last_end) {
			paths = paths_before;
		} else {
			last_end = map->end;
			maps.n++;
		}
		text = eol < end ? eol + 1 : end;
	}
	*maps_ret = maps;
	return 0;
}

/* ---- files of /proc/PID ---- */

/* What a missing file below /proc/PID means. */
static int proc_error(int err)
{
	return err == ENOENT ? -ESRCH : -err;
}

/* Whole file, NUL-terminated, caller frees. /proc files do not know their
 * size. */
static int read_file(int dir_fd, const char *name, size_t size_max,
		     char **text_ret, size_t *size_ret)
{
	_cleanup_fd_ int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	_cleanup_free_ char *text = NULL;
	size_t size = 0, room = 0;

	if (fd < 0)
		return proc_error(errno);
	for (;;) {
		if (room - size < 4096) {
			size_t want = room ? 2 * room : 16384;
			char *more = realloc(text, want);

			if (!more)
				return -ENOMEM;
			text = more;
			room = want;
		}

		ssize_t n = read(fd, text + size, room - size - 1);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return proc_error(errno);
		if (n == 0)
			break;
		size += (size_t)n;
		if (size > size_max)
			return -E2BIG;
	}
	text[size] = '\0';
	*text_ret = text;
	*size_ret = size;
	text = NULL;
	return 0;
}

int lb_proc_parse_stat(const char *text, uint64_t *start_ticks_ret)
{
	/* comm may hold spaces and parentheses, the fields behind it cannot */
	const char *pos = strrchr(text, ')');
	const char *end = text + strlen(text);

	if (!pos)
		return -EBADMSG;
	/* ") S PPID ..."; the state is field 3, the start time field 22 */
	for (int field = 2; field < 22; field++) {
		pos = strchr(pos, ' ');
		if (!pos)
			return -EBADMSG;
		pos++;
	}
	return next_number(&pos, end, 10, start_ticks_ret) ? 0 : -EBADMSG;
}

static int read_start_ticks(struct lb_proc *proc)
{
	_cleanup_free_ char *text = NULL;
	size_t size;
	int err = read_file(proc->dir_fd, "stat", STAT_SIZE_MAX, &text, &size);

	return err ? err : lb_proc_parse_stat(text, &proc->start_ticks);
}

static int read_maps(int dir_fd, struct lb_proc_maps *maps_ret)
{
	_cleanup_free_ char *text = NULL;
	size_t size;
	int err = read_file(dir_fd, "maps", MAPS_SIZE_MAX, &text, &size);

	return err ? err : lb_proc_parse_maps(text, size, maps_ret);
}

int lb_proc_open(pid_t pid, struct lb_proc **proc_ret)
{
	char path[32];
	struct lb_proc *proc = calloc(1, sizeof(*proc));

	if (!proc)
		return -ENOMEM;
	snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	proc->pid = pid;
	proc->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	int err = proc->dir_fd < 0 ? proc_error(errno) : read_start_ticks(proc);

	if (!err)
		err = read_maps(proc->dir_fd, &proc->maps);
	if (err) {
		lb_proc_free(proc);
		return err;
	}
	*proc_ret = proc;
	return 0;
}

void lb_proc_gone(struct lb_proc *proc)
{
	lb_close_fd(&proc->dir_fd);
	proc->dir_fd = -1;
}

void lb_proc_free(struct lb_proc *proc)
{
	if (!proc)
		return;
	lb_close_fd(&proc->dir_fd);
	lb_proc_maps_fini(&proc->maps);
	free(proc);
}

pid_t lb_proc_pid(const struct lb_proc *proc)
{
	return proc->pid;
}

uint64_t lb_proc_start_ticks(const struct lb_proc *proc)
{
	return proc->start_ticks;
}

static const struct lb_proc_map *next_exec(const struct lb_proc_maps *maps,
					   size_t *index)
{
	while (*index < maps->n) {
		const struct lb_proc_map *map = &maps->maps[(*index)++];

		if (map->exec)
			return map;
	}
	return NULL;
}

static bool exec_equal(const struct lb_proc_maps *a,
		       const struct lb_proc_maps *b)
{
	size_t index_a = 0, index_b = 0;

	for (;;) {
		const struct lb_proc_map *map_a = next_exec(a, &index_a);
		const struct lb_proc_map *map_b = next_exec(b, &index_b);

		if (!map_a || !map_b)
			return !map_a && !map_b;
		if (map_a->start != map_b->start || map_a->end != map_b->end ||
		    map_a->off != map_b->off || map_a->ino != map_b->ino ||
		    map_a->dev_major != map_b->dev_major ||
		    map_a->dev_minor != map_b->dev_minor ||
		    map_a->kind != map_b->kind)
			return false;
	}
}

int lb_proc_refresh(struct lb_proc *proc, bool *changed_ret)
{
	struct lb_proc_maps maps;
	int err = read_maps(proc->dir_fd, &maps);

	if (err)
		return err;
	*changed_ret = !exec_equal(&proc->maps, &maps);
	lb_proc_maps_fini(&proc->maps);
	proc->maps = maps;
	return 0;
}

size_t lb_proc_maps(const struct lb_proc *proc,
		    const struct lb_proc_map **maps_ret)
{
	*maps_ret = proc->maps.maps;
	return proc->maps.n;
}

const struct lb_proc_map *lb_proc_map_at(const struct lb_proc *proc,
					 uint64_t addr)
{
	size_t lo = 0, hi = proc->maps.n;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;
		const struct lb_proc_map *map = &proc->maps.maps[mid];

		if (addr < map->start)
			hi = mid;
		else if (addr >= map->end)
			lo = mid + 1;
		else
			return map;
	}
	return NULL;
}

/* ---- files the process uses ---- */

/*
 * From O_PATH to readable. The type is checked in between: to open a device or
 * a FIFO of somebody else's can have effects.
 */
static int reopen_regular(int path_fd, int *fd_ret)
{
	char path[48];
	struct stat st;

	if (fstat(path_fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", path_fd);

	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	*fd_ret = fd;
	return 0;
}

int lb_proc_open_path(const struct lb_proc *proc, const char *path, int *fd_ret)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC,
		/* an absolute symlink must not lead to a file of our root */
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	_cleanup_fd_ int root_fd =
		openat(proc->dir_fd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (root_fd < 0)
		return proc_error(errno);

	_cleanup_fd_ int path_fd =
		(int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));

	if (path_fd < 0)
		return -errno;
	return reopen_regular(path_fd, fd_ret);
}

static int open_map_file(const struct lb_proc *proc,
			 const struct lb_proc_map *map, int *fd_ret)
{
	char path[64];

	snprintf(path, sizeof(path), "map_files/%" PRIx64 "-%" PRIx64,
		 map->start, map->end);

	_cleanup_fd_ int path_fd =
		openat(proc->dir_fd, path, O_PATH | O_CLOEXEC);

	if (path_fd < 0)
		return -errno;
	return reopen_regular(path_fd, fd_ret);
}

int lb_proc_open_map(const struct lb_proc *proc, const struct lb_proc_map *map,
		     int *fd_ret)
{
	struct stat st;

	if (map->kind != LB_MAP_FILE)
		return -ENOENT;
	if (!open_map_file(proc, map, fd_ret))
		return 0;

	int fd;
	int err = lb_proc_open_path(proc, map->path, &fd);

	if (err)
		return err;
	if (fstat(fd, &st) || st.st_ino != map->ino ||
	    major(st.st_dev) != map->dev_major ||
	    minor(st.st_dev) != map->dev_minor) {
		close(fd);
		return -ESTALE;
	}
	*fd_ret = fd;
	return 0;
}

int lb_proc_read(const struct lb_proc *proc, uint64_t addr, void *buf,
		 size_t size)
{
	uint64_t end;
	char *out = buf;

	if (__builtin_add_overflow(addr, size, &end))
		return -EFAULT;
	/* a read that meets an unmapped page gives what is before it */
	while (size) {
		struct iovec local = { .iov_base = out, .iov_len = size };
		struct iovec remote = {
			.iov_base = (void *)(uintptr_t)addr,
			.iov_len = size,
		};
		ssize_t n =
			process_vm_readv(proc->pid, &local, 1, &remote, 1, 0);

		if (n < 0)
			return -errno;
		if (n == 0)
			return -EFAULT;
		out += n;
		addr += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

int lb_proc_comm(pid_t pid, char *comm_ret)
{
	char path[32];
	char comm[16];

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);

	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return proc_error(errno);

	ssize_t n = read(fd, comm, sizeof(comm));

	if (n < 0)
		return proc_error(errno);
	if (n == sizeof(comm))
		n--;
	if (n > 0 && comm[n - 1] == '\n')
		n--;
	memcpy(comm_ret, comm, (size_t)n);
	memset(comm_ret + n, 0, sizeof(comm) - (size_t)n);
	return 0;
}
