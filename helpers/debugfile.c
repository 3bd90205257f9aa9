/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the symbols of a stripped file are.
 * Conventions: GDB manual, "Debugging Information in Separate Files" and
 * "Debugging information in a special section" (MiniDebugInfo).
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "debugfile.h"

#define DEBUG_DIR    "/usr/lib/debug"
#define UNPACKED_MAX (64U << 20)	   /* bytes */
#define XZ_MEMORY    (UINT64_C(128) << 20) /* bytes of dictionary */
#define CRC_FILE_MAX (512U << 20)

struct build_id {
	uint8_t bytes[LB_BUILD_ID_MAX];
	size_t size; /* 0: none */
};

static struct build_id build_id_of(const struct lb_elf *elf)
{
	struct build_id id = { .size = 0 };

	if (lb_elf_build_id(elf, id.bytes, &id.size))
		id.size = 0;
	return id;
}

static bool same_id(const struct build_id *a, const struct build_id *b)
{
	return a->size && a->size == b->size &&
	       !memcmp(a->bytes, b->bytes, a->size);
}

static int open_ours(const char *path, int *fd_ret)
{
	struct stat st;
	/* nonblock: a FIFO must not stop us here */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return -ENOENT;
	}
	*fd_ret = fd;
	return 0;
}

static bool crc_is(int fd, uint32_t want)
{
	_cleanup_free_ uint8_t *buf = malloc(1 << 16);
	uint32_t crc = 0;
	uint64_t total = 0;

	if (!buf)
		return false;
	for (;;) {
		ssize_t n = pread(fd, buf, 1 << 16, (off_t)total);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return false;
		if (!n)
			return crc == want;
		crc = lzma_crc32(buf, (size_t)n, crc);
		total += (uint64_t)n;
		if (total > CRC_FILE_MAX)
			return false;
	}
}

struct wanted {
	const struct lb_proc *proc;
	struct build_id id;
	bool has_crc;
	uint32_t crc;
};

/* The file at @path if it is the right one. */
static int try_root(const struct wanted *wanted, bool theirs, const char *path,
		    struct lb_elf **debug_ret)
{
	_cleanup_fd_ int fd = -1;
	struct lb_elf *debug;
	struct build_id id;
	int err;

	if (theirs && !wanted->proc)
		return -ENOENT;
	err = theirs ? lb_proc_open_path(wanted->proc, path, &fd)
		     : open_ours(path, &fd);
	if (!err)
		err = lb_elf_open_fd(fd, path, &debug);
	if (err)
		return err == -ENOMEM ? err : -ENOENT;
	id = build_id_of(debug);
	if (same_id(&wanted->id, &id) ||
	    (!wanted->id.size && wanted->has_crc && crc_is(fd, wanted->crc))) {
		*debug_ret = debug;
		return 0;
	}
	lb_elf_free(debug);
	return -ENOENT;
}

static int try_path(const struct wanted *wanted, const char *path,
		    struct lb_elf **debug_ret)
{
	int err = try_root(wanted, true, path, debug_ret);

	return err == -ENOENT ? try_root(wanted, false, path, debug_ret) : err;
}

static int open_by_id(const struct wanted *wanted, struct lb_elf **debug_ret)
{
	char path[sizeof(DEBUG_DIR) + 2 * LB_BUILD_ID_MAX + 32];
	int n = sprintf(path, DEBUG_DIR "/.build-id/%02x/",
			wanted->id.bytes[0]);

	if (wanted->id.size < 2)
		return -ENOENT;
	for (size_t i = 1; i < wanted->id.size; i++)
		n += sprintf(path + n, "%02x", wanted->id.bytes[i]);
	strcpy(path + n, ".debug");
	return try_path(wanted, path, debug_ret);
}

/* Name and checksum in .gnu_debuglink. */
static int read_link(const struct lb_elf *elf, const char **name_ret,
		     uint32_t *crc_ret)
{
	struct lb_section section;
	struct lb_buf buf;
	const char *name;
	uint32_t crc;
	int err = lb_elf_section(elf, ".gnu_debuglink", &section);

	if (err || !section.data)
		return -ENOENT;
	lb_buf_init(&buf, section.data, section.size, section.vaddr);
	name = lb_buf_str(&buf);
	if (!name || !*name || strchr(name, '/'))
		return -ENOENT;
	lb_buf_seek(&buf, (strlen(name) + 4) & ~UINT64_C(3));
	crc = lb_buf_u32(&buf);
	if (buf.bad)
		return -ENOENT;
	*name_ret = name;
	*crc_ret = crc;
	return 0;
}

static int open_by_link(const struct lb_elf *elf, struct wanted *wanted,
			struct lb_elf **debug_ret)
{
	static const char *const formats[] = { "%.*s/%s", "%.*s/.debug/%s",
					       DEBUG_DIR "%.*s/%s" };
	const char *file = lb_elf_name(elf);
	const char *slash = strrchr(file, '/');
	const char *name;
	int err = read_link(elf, &name, &wanted->crc);

	if (err || *file != '/' || slash - file > PATH_MAX)
		return -ENOENT;
	wanted->has_crc = true;
	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
		char path[2 * PATH_MAX];
		int n = snprintf(path, sizeof(path), formats[i],
				 (int)(slash - file), file, name);

		if (n < 0 || (size_t)n >= sizeof(path))
			return -ENOENT;
		err = try_path(wanted, path, debug_ret);
		if (err != -ENOENT)
			return err;
	}
	return -ENOENT;
}

int lb_debugfile_open(const struct lb_elf *elf, const struct lb_proc *proc,
		      struct lb_elf **debug_ret)
{
	struct wanted wanted = { .proc = proc, .id = build_id_of(elf) };
	int err = open_by_id(&wanted, debug_ret);

	return err == -ENOENT ? open_by_link(elf, &wanted, debug_ret) : err;
}

/* All of an xz stream; the caller frees *data_ret. */
static int unpack(const uint8_t *in, size_t in_size, uint8_t **data_ret,
		  size_t *size_ret)
{
	lzma_stream stream = LZMA_STREAM_INIT;
	size_t room = 256 << 10;
	uint8_t *data = NULL;
	lzma_ret ret = lzma_stream_decoder(&stream, XZ_MEMORY, 0);
	int err = ret == LZMA_OK ? 0 : -ENOMEM;

	stream.next_in = in;
	stream.avail_in = in_size;
	while (!err) {
		uint8_t *bigger = realloc(data, room);

		if (!bigger) {
			err = -ENOMEM;
			break;
		}
		data = bigger;
		stream.next_out = data + stream.total_out;
		stream.avail_out = room - stream.total_out;
		ret = lzma_code(&stream, LZMA_FINISH);
		if (ret == LZMA_STREAM_END)
			break;
		if (ret != LZMA_OK || stream.avail_out)
			err = ret == LZMA_MEM_ERROR ? -ENOMEM : -EBADMSG;
		else if (room >= UNPACKED_MAX)
			err = -E2BIG;
		room *= 2;
	}
	*size_ret = stream.total_out;
	lzma_end(&stream);
	if (err) {
		free(data);
		return err;
	}
	*data_ret = data;
	return 0;
}

int lb_debugfile_unpack(const struct lb_elf *elf, struct lb_elf **debug_ret)
{
	_cleanup_free_ uint8_t *data = NULL;
	struct lb_section section;
	size_t size;
	int err = lb_elf_section(elf, ".gnu_debugdata", &section);

	if (err)
		return err;
	if (!section.data)
		return -ENODATA;
	err = unpack(section.data, section.size, &data, &size);
	if (err)
		return err;
	err = lb_elf_open_mem(data, size, lb_elf_name(elf), debug_ret);
	return err && err != -ENOMEM ? -EBADMSG : err;
}
