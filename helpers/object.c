/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped files of a run, and their rows in the tables that BPF reads. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "object.h"

#define VDSO_MAX (1 << 20) /* bytes */

/* Two names of one object: (device, inode) and build ID with size. */
struct object_key {
	uint64_t dev;
	uint64_t ino;
	uint64_t mtime_ns;
	struct lb_object *object;
};

struct lb_objects {
	struct lb_object **all;
	size_t n_all;
	struct object_key *keys;
	size_t n_keys;
	struct lb_tables tables;
};

int lb_objects_new(struct lb_objects **objects_ret)
{
	struct lb_objects *objects = calloc(1, sizeof(*objects));

	if (!objects)
		return -ENOMEM;
	*objects_ret = objects;
	return 0;
}

static void object_free(struct lb_object *object)
{
	if (!object)
		return;
	lb_sym_free(object->sym);
	lb_unwind_free(object->unwind);
	lb_elf_free(object->elf);
	free(object->name);
	free(object);
}

void lb_objects_free(struct lb_objects *objects)
{
	if (!objects)
		return;
	for (size_t i = 0; i < objects->n_all; i++)
		object_free(objects->all[i]);
	free(objects->all);
	free(objects->keys);
	free(objects->tables.rows);
	free(objects->tables.rules);
	free(objects->tables.blocks);
	free(objects);
}

struct lb_tables *lb_objects_tables(struct lb_objects *objects)
{
	return &objects->tables;
}

size_t lb_objects_count(const struct lb_objects *objects)
{
	return objects->n_all;
}

struct lb_object *lb_objects_at(const struct lb_objects *objects, size_t i)
{
	return i < objects->n_all ? objects->all[i] : NULL;
}

/* Room for @more elements of @size bytes behind @n. */
static int grow(void *array_addr, uint32_t n, uint32_t more, size_t size)
{
	void **array = array_addr;
	uint64_t want = (uint64_t)n + more;

	if (want > UINT32_MAX)
		return -E2BIG;
	void *bigger = realloc(*array, (want ? want : 1) * size);

	if (!bigger)
		return -ENOMEM;
	*array = bigger;
	return 0;
}

/* Append the table of one object to the tables of all. */
static int place(struct lb_tables *all, struct lb_object *object)
{
	const struct lb_unwind *u = object->unwind;
	uint32_t n_blocks = u->n_blocks;

	if ((all->max_rows && all->n_rows + u->n_rows > all->max_rows) ||
	    (all->max_rules && all->n_rules + u->n_rules > all->max_rules) ||
	    (all->max_blocks && all->n_blocks + n_blocks > all->max_blocks))
		return -ENOSPC;
	int err = grow(&all->rows, all->n_rows, u->n_rows, sizeof(*all->rows));

	if (!err)
		err = grow(&all->rules, all->n_rules, u->n_rules,
			   sizeof(*all->rules));
	if (!err)
		err = grow(&all->blocks, all->n_blocks, n_blocks,
			   sizeof(*all->blocks));
	if (err)
		return err;
	object->block = all->n_blocks;
	for (uint32_t i = 0; i < n_blocks; i++)
		all->blocks[all->n_blocks + i] = all->n_rows + u->blocks[i];
	for (uint32_t i = 0; i < u->n_rows; i++) {
		all->rows[all->n_rows + i].vaddr = u->rows[i].vaddr;
		all->rows[all->n_rows + i].rule =
			all->n_rules + u->rows[i].rule;
	}
	memcpy(all->rules + all->n_rules, u->rules,
	       u->n_rules * sizeof(*u->rules));
	all->n_blocks += n_blocks;
	all->n_rows += u->n_rows;
	all->n_rules += u->n_rules;
	object->placed = true;
	return 0;
}

static struct lb_object *find_key(const struct lb_objects *objects,
				  uint64_t dev, uint64_t ino, uint64_t mtime_ns)
{
	for (size_t i = 0; i < objects->n_keys; i++) {
		const struct object_key *key = &objects->keys[i];

		if (key->dev == dev && key->ino == ino &&
		    key->mtime_ns == mtime_ns)
			return key->object;
	}
	return NULL;
}

/* Another file with the same build ID and size: the same bytes. */
static struct lb_object *find_build_id(const struct lb_objects *objects,
				       const struct lb_elf *elf)
{
	uint8_t id[LB_BUILD_ID_MAX], other[LB_BUILD_ID_MAX];
	size_t len, other_len;

	if (lb_elf_build_id(elf, id, &len))
		return NULL;
	for (size_t i = 0; i < objects->n_all; i++) {
		struct lb_object *object = objects->all[i];

		if (object->elf &&
		    !lb_elf_build_id(object->elf, other, &other_len) &&
		    len == other_len && !memcmp(id, other, len) &&
		    lb_elf_size(object->elf) == lb_elf_size(elf))
			return object;
	}
	return NULL;
}

static int add_key(struct lb_objects *objects, const struct object_key *key)
{
	if (grow(&objects->keys, objects->n_keys, 1, sizeof(*key)))
		return -ENOMEM;
	objects->keys[objects->n_keys++] = *key;
	return 0;
}

/* All that is made from the file alone. */
static void object_parse(struct lb_object *object)
{
	int err = lb_luajit_find(object->elf, &object->luajit);

	if (!err || err == -EOPNOTSUPP) {
		object->has_vm = true;
		object->vm_err = err;
	}
	if (!err)
		object->vm_err = lb_offsets_choose(object->elf, &object->luajit,
						   &object->source);
	object->unwind_err = lb_unwind_build(
		object->elf, object->has_vm ? &object->luajit : NULL,
		&object->unwind);
}

static int elf_of_map(const struct lb_proc *proc, const struct lb_proc_map *map,
		      int fd, struct lb_elf **elf_ret)
{
	if (map->kind != LB_MAP_VDSO)
		return lb_elf_open_fd(fd, map->path, elf_ret);

	size_t size = map->end - map->start;
	_cleanup_free_ void *image = NULL;

	if (size > VDSO_MAX)
		return -E2BIG;
	image = malloc(size);
	if (!image)
		return -ENOMEM;
	int err = lb_proc_read(proc, map->start, image, size);

	return err ? err : lb_elf_open_mem(image, size, "[vdso]", elf_ret);
}

static char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return strdup(slash && slash[1] ? slash + 1 : path);
}

/* A new object of a file that is in none yet; takes @elf, NULL with @elf_err.
 */
static int add_object(struct lb_objects *objects, struct lb_elf *elf,
		      int elf_err, const char *path,
		      struct lb_object **object_ret)
{
	struct lb_object *object = calloc(1, sizeof(*object));

	if (!object ||
	    grow(&objects->all, objects->n_all, 1, sizeof(*objects->all))) {
		free(object);
		lb_elf_free(elf);
		return -ENOMEM;
	}
	object->name = last_part(path);
	object->elf = elf;
	object->unwind_err = elf_err;
	if (elf)
		object_parse(object);
	if (object->unwind) {
		int err = place(&objects->tables, object);

		if (err)
			object->unwind_err = err;
	}
	objects->all[objects->n_all++] = object;
	*object_ret = object;
	return 0;
}

int lb_objects_get(struct lb_objects *objects, const struct lb_proc *proc,
		   const struct lb_proc_map *map, struct lb_object **object_ret)
{
	_cleanup_fd_ int fd = -1;
	struct object_key key = { 0 };
	struct lb_elf *elf = NULL;

	if (map->kind != LB_MAP_VDSO) {
		int err = lb_proc_open_map(proc, map, &fd);
		struct stat st;

		if (err)
			return err;
		if (fstat(fd, &st))
			return -errno;
		key.dev = st.st_dev;
		key.ino = st.st_ino;
		key.mtime_ns =
			st.st_mtim.tv_sec * 1000000000ULL + st.st_mtim.tv_nsec;
		*object_ret = find_key(objects, key.dev, key.ino, key.mtime_ns);
		if (*object_ret)
			return 0;
	}
	int elf_err = elf_of_map(proc, map, fd, &elf);
	struct lb_object *object = elf ? find_build_id(objects, elf) : NULL;

	if (object) {
		lb_elf_free(elf);
	} else {
		int err = add_object(objects, elf, elf_err, map->path, &object);

		if (err)
			return err;
	}
	key.object = object;
	if (map->kind != LB_MAP_VDSO && add_key(objects, &key))
		return -ENOMEM;
	*object_ret = object;
	return 0;
}

int lb_objects_open(struct lb_objects *objects, const char *path,
		    struct lb_object **object_ret)
{
	_cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct lb_elf *elf;
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EISDIR;
	int err = lb_elf_open_fd(fd, path, &elf);

	return err ? err : add_object(objects, elf, 0, path, object_ret);
}

struct lb_sym *lb_object_sym(struct lb_object *object,
			     const struct lb_proc *proc)
{
	if (!object->sym && object->elf &&
	    lb_sym_new(object->elf, proc, &object->sym))
		return NULL;
	return object->sym;
}
