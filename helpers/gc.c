/* SPDX-License-Identifier: Apache-2.0 */
/* Processes whose garbage collector is measured. */
#include <bpf/bpf.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gc.h"
#include "lb.h"
#include "proc.h"

#define PROCS_MAX 4096
#define FILES_MAX 65536

/* A process. Its probes go with their descriptors. */
struct gc_proc {
	struct lb_proc *proc;
	struct lb_gc_proc entry;
	const struct lb_gc_file *files[LB_VMS_MAX];
	int file_fds[LB_VMS_MAX];  /* open until the probes are set */
	uint64_t inos[LB_VMS_MAX]; /* of the mappings */
	uint64_t vdso_addr;	   /* another one after an exec; 0: none */
	int *probe_fds;
	size_t n_probes;
	bool attached;
	bool gone;
	const char *end; /* what became of it, until that is told */
};

struct lb_gc {
	struct gc_proc *procs;
	size_t n_procs;
	struct lb_gc_file **files;
	size_t n_files;
	int procs_fd; /* the caller's; -1 before probes are set */
	char error[512];
};

__attribute__((format(printf, 3, 4))) static int fail(struct lb_gc *gc, int err,
						      const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(gc->error, sizeof(gc->error), format, args);
	va_end(args);
	return err;
}

int lb_gc_new(struct lb_gc **gc_ret)
{
	struct lb_gc *gc = calloc(1, sizeof(*gc));

	if (!gc)
		return -ENOMEM;
	gc->procs_fd = -1;
	*gc_ret = gc;
	return 0;
}

static void close_files(struct gc_proc *proc)
{
	for (size_t i = 0; i < LB_VMS_MAX; i++) {
		if (proc->file_fds[i] >= 0)
			close(proc->file_fds[i]);
		proc->file_fds[i] = -1;
	}
}

static void close_probes(struct gc_proc *proc)
{
	for (size_t i = 0; i < proc->n_probes; i++)
		close(proc->probe_fds[i]);
	proc->n_probes = 0;
}

static void proc_fini(struct gc_proc *proc)
{
	close_probes(proc);
	free(proc->probe_fds);
	close_files(proc);
	lb_proc_free(proc->proc);
}

void lb_gc_free(struct lb_gc *gc)
{
	if (!gc)
		return;
	for (size_t i = 0; i < gc->n_procs; i++)
		proc_fini(&gc->procs[i]);
	free(gc->procs);
	for (size_t i = 0; i < gc->n_files; i++) {
		lb_probes_fini(&gc->files[i]->probes);
		free(gc->files[i]);
	}
	free(gc->files);
	free(gc);
}

const char *lb_gc_error(const struct lb_gc *gc)
{
	return gc->error;
}

/* ---- one file ---- */

/*
 * Fields that the code shows are believed; where it shows nothing, those of the
 * table's entry with the same marks. Where both are there they must agree.
 */
static bool take_field(uint32_t *field, uint32_t other)
{
	if (*field == LJ_OFFSETS_NONE)
		*field = other;
	return other == LJ_OFFSETS_NONE || *field == other;
}

static bool take_table(struct lj_offsets *offsets,
		       const struct lb_luajit *luajit)
{
	struct lj_offsets table;
	const char *name;

	if (lb_offsets_find(luajit, &table, &name))
		return true; /* a build that is not in it */
	return take_field(&offsets->g_gc_state, table.g_gc_state) &&
	       take_field(&offsets->g_gc_total, table.g_gc_total) &&
	       take_field(&offsets->g_gc_threshold, table.g_gc_threshold) &&
	       take_field(&offsets->g_gc_debt, table.g_gc_debt) &&
	       take_field(&offsets->g_gc_estimate, table.g_gc_estimate) &&
	       take_field(&offsets->g_vmstate, table.g_vmstate) &&
	       take_field(&offsets->g_cur_l, table.g_cur_l) &&
	       take_field(&offsets->l_glref, table.l_glref) &&
	       take_field(&offsets->vm_gc, table.vm_gc);
}

static bool has_fields(const struct lj_offsets *offsets)
{
	return offsets->g_gc_state != LJ_OFFSETS_NONE &&
	       offsets->g_gc_total != LJ_OFFSETS_NONE &&
	       offsets->g_gc_threshold != LJ_OFFSETS_NONE &&
	       offsets->g_vmstate != LJ_OFFSETS_NONE &&
	       offsets->l_glref != LJ_OFFSETS_NONE &&
	       offsets->vm_gc != LJ_OFFSETS_NONE;
}

int lb_gc_file_read(const struct lb_elf *elf, struct lb_gc_file *file)
{
	struct lb_scan scan;
	int err = lb_luajit_find(elf, &file->luajit);

	if (err == -ENOMEM)
		return err;
	file->has_vm = !err || err == -EOPNOTSUPP;
	if (!file->has_vm)
		return 0;
	file->missing = "entry code of its VM";
	if (err)
		return 0;
	file->missing = "code of its VM";
	err = lb_scan_offsets(elf, &file->luajit, &scan);
	if (err)
		return err == -ENOMEM ? err : 0;
	err = lb_gcprobes_find(elf, &file->luajit, &scan, &file->probes,
			       &file->missing);
	if (err)
		return err == -ENOMEM ? err : 0;
	file->offsets = scan.offsets;
	file->missing = "offsets on which its code and the table agree";
	if (!take_table(&file->offsets, &file->luajit))
		return 0;
	file->missing = "offsets of the collector";
	if (!has_fields(&file->offsets))
		return 0;
	file->missing = NULL;
	for (size_t i = 0; i < file->probes.n; i++)
		file->exact_phases |= file->probes.list[i].kind >= LB_GC_PHASE;
	return 0;
}

/* Room for one more. */
static int grow(void *array_addr, size_t n, size_t max, size_t size)
{
	void **array = array_addr;
	void *bigger;

	if (n >= max)
		return -E2BIG;
	if (n & (n - 1)) /* doubled at powers of two */
		return 0;
	bigger = realloc(*array, (n ? 2 * n : 1) * size);
	if (!bigger)
		return -ENOMEM;
	*array = bigger;
	return 0;
}

/* What is known of an open file; read when it is new. */
static int file_of(struct lb_gc *gc, int fd, const char *name,
		   struct lb_gc_file **file_ret)
{
	struct lb_gc_file *file;
	struct lb_elf *elf;
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return -errno;

	uint64_t mtime_ns =
		st.st_mtim.tv_sec * 1000000000ULL + st.st_mtim.tv_nsec;

	for (size_t i = 0; i < gc->n_files; i++) {
		file = gc->files[i];
		if (file->dev == st.st_dev && file->ino == st.st_ino &&
		    file->mtime_ns == mtime_ns) {
			*file_ret = file;
			return 0;
		}
	}
	err = grow(&gc->files, gc->n_files, FILES_MAX, sizeof(*gc->files));
	if (err)
		return err;
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	file->dev = st.st_dev;
	file->ino = st.st_ino;
	file->mtime_ns = mtime_ns;
	err = lb_elf_open_fd(fd, name, &elf);
	if (!err) {
		err = lb_gc_file_read(elf, file);
		lb_elf_free(elf);
	} else if (err != -ENOMEM) {
		err = 0; /* no file of ours */
	}
	if (err) {
		lb_probes_fini(&file->probes);
		free(file);
		return err;
	}
	gc->files[gc->n_files++] = file;
	*file_ret = file;
	return 0;
}

/* ---- one process ---- */

/* All code of the file around @map: its other mappings have the same bias. */
static void find_text(const struct lb_proc_map *maps, size_t n,
		      const struct lb_proc_map *map, struct lb_gc_vm *vm)
{
	vm->text_lo = map->start;
	vm->text_hi = map->end;
	for (size_t i = 0; i < n; i++) {
		if (!maps[i].exec || maps[i].ino != map->ino ||
		    maps[i].dev_major != map->dev_major ||
		    maps[i].dev_minor != map->dev_minor ||
		    maps[i].start - maps[i].off != map->start - map->off)
			continue;
		if (maps[i].start < vm->text_lo)
			vm->text_lo = maps[i].start;
		if (maps[i].end > vm->text_hi)
			vm->text_hi = maps[i].end;
	}
}

static struct lb_gc_vm describe(const struct lb_gc_file *file)
{
	const struct lj_offsets *offsets = &file->offsets;

	return (struct lb_gc_vm){
		.ref_size = offsets->gc64 ? 8 : 4,
		.g2disp = offsets->g2disp,
		.l_glref = offsets->l_glref,
		.g_cur_l = offsets->g_cur_l,
		.g_vmstate = offsets->g_vmstate,
		.g_gc_state = offsets->g_gc_state,
		.g_gc_total = offsets->g_gc_total,
		.vm_gc = offsets->vm_gc,
	};
}

/* The VM that @map holds the code of, if it does. */
static int add_map(struct lb_gc *gc, struct gc_proc *proc,
		   const struct lb_proc_map *maps, size_t n,
		   const struct lb_proc_map *map)
{
	struct lb_gc_proc *entry = &proc->entry;
	_cleanup_fd_ int fd = -1;
	struct lb_gc_file *file = NULL;
	struct lb_elf *elf;
	uint64_t bias = 0;
	int err;

	if (lb_proc_open_map(proc->proc, map, &fd))
		return 0;
	err = file_of(gc, fd, map->path, &file);
	if (err || !file->has_vm)
		return err;
	if (file->missing)
		return fail(gc, -EOPNOTSUPP,
			    "PID %d: %s holds a LuaJIT VM whose collector is "
			    "not understood: %s not found",
			    lb_proc_pid(proc->proc), map->path, file->missing);
	err = lb_elf_open_fd(fd, map->path, &elf);
	if (err)
		return err;
	err = lb_elf_bias(elf, map->start, map->off, &bias);
	lb_elf_free(elf);
	if (err ||
	    bias + file->luajit.vm_vaddr - map->start >= map->end - map->start)
		return 0; /* another part of the file */
	if (entry->n_vms == LB_VMS_MAX)
		return fail(gc, -EOPNOTSUPP,
			    "PID %d: more than %d LuaJIT files in it",
			    lb_proc_pid(proc->proc), LB_VMS_MAX);
	entry->vms[entry->n_vms] = describe(file);
	find_text(maps, n, map, &entry->vms[entry->n_vms]);
	proc->files[entry->n_vms] = file;
	proc->inos[entry->n_vms] = map->ino;
	proc->file_fds[entry->n_vms++] = fd;
	fd = -1;
	return 0;
}

static int find_vms(struct lb_gc *gc, struct gc_proc *proc)
{
	const struct lb_proc_map *maps;
	size_t n = lb_proc_maps(proc->proc, &maps), n_exec = 0;

	for (size_t i = 0; i < n; i++) {
		int err;

		if (!maps[i].exec || maps[i].kind != LB_MAP_FILE)
			continue;
		n_exec++;
		err = add_map(gc, proc, maps, n, &maps[i]);
		if (err)
			return err;
	}
	if (!proc->entry.n_vms)
		return fail(gc, -ENOENT,
			    "PID %d: no LuaJIT in it: none of its %zu mapped "
			    "files of code holds the VM",
			    lb_proc_pid(proc->proc), n_exec);
	return 0;
}

static uint64_t vdso_of(const struct lb_proc *proc)
{
	const struct lb_proc_map *maps;
	size_t n = lb_proc_maps(proc, &maps);

	for (size_t i = 0; i < n; i++)
		if (maps[i].kind == LB_MAP_VDSO)
			return maps[i].start;
	return 0;
}

/* The kernel's errors in words that name the process. */
static int refuse(struct lb_gc *gc, int pid, int err)
{
	if (gc->error[0])
		return err;
	if (err == -ESRCH)
		return fail(gc, err, "PID %d: no such process", pid);
	return fail(gc, err, "PID %d: %s", pid, strerror(-err));
}

static struct gc_proc *proc_of(const struct lb_gc *gc, int pid)
{
	for (size_t i = 0; i < gc->n_procs; i++)
		if (lb_proc_pid(gc->procs[i].proc) == pid && !gc->procs[i].gone)
			return &gc->procs[i];
	return NULL;
}

int lb_gc_add_pid(struct lb_gc *gc, int pid)
{
	struct gc_proc proc = { .attached = false };
	int err;

	gc->error[0] = 0;
	if (proc_of(gc, pid))
		return 0;
	for (size_t i = 0; i < LB_VMS_MAX; i++)
		proc.file_fds[i] = -1;
	err = lb_proc_open(pid, &proc.proc);
	if (err)
		return refuse(gc, pid, err);
	err = find_vms(gc, &proc);
	if (!err)
		err = grow(&gc->procs, gc->n_procs, PROCS_MAX,
			   sizeof(*gc->procs));
	if (err) {
		proc_fini(&proc);
		return refuse(gc, pid, err);
	}
	proc.vdso_addr = vdso_of(proc.proc);
	gc->procs[gc->n_procs++] = proc;
	return 0;
}

/* ---- probes ---- */

static int attach_vm(struct gc_proc *proc, size_t vm, const int *prog_fds,
		     size_t n)
{
	const struct lb_probes *probes = &proc->files[vm]->probes;
	char path[48];

	/* the open file itself: no name can lead to another one */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", proc->file_fds[vm]);
	for (size_t i = 0; i < probes->n; i++) {
		const struct lb_probe *probe = &probes->list[i];
		int err;

		if (probe->kind >= n)
			return -EINVAL;
		err = lb_probe_attach(path, probe->off, lb_proc_pid(proc->proc),
				      prog_fds[probe->kind],
				      &proc->probe_fds[proc->n_probes]);
		if (err)
			return err;
		proc->n_probes++;
	}
	return 0;
}

static int attach_proc(struct gc_proc *proc, int procs_fd, const int *prog_fds,
		       size_t n)
{
	uint32_t tgid = (uint32_t)lb_proc_pid(proc->proc);
	size_t n_probes = 0;
	int err = 0;

	proc->attached = true;
	if (bpf_map_update_elem(procs_fd, &tgid, &proc->entry, BPF_ANY))
		return -errno;
	if (!prog_fds)
		return 0;
	for (size_t i = 0; i < proc->entry.n_vms; i++)
		n_probes += proc->files[i]->probes.n;
	proc->probe_fds = calloc(n_probes, sizeof(*proc->probe_fds));
	if (!proc->probe_fds)
		return -ENOMEM;
	for (size_t i = 0; i < proc->entry.n_vms && !err; i++)
		err = attach_vm(proc, i, prog_fds, n);
	close_files(proc);
	return err;
}

/* Is the code of all its VMs where it was? */
static bool has_vms(const struct gc_proc *proc)
{
	for (size_t i = 0; i < proc->entry.n_vms; i++) {
		const struct lb_proc_map *map =
			lb_proc_map_at(proc->proc, proc->entry.vms[i].text_lo);

		if (!map || !map->exec || map->ino != proc->inos[i])
			return false;
	}
	return true;
}

/* Behind a main thread that has ended there may be others; then maps is empty,
 * as it is of a process that nobody has waited for yet. */
static bool has_threads(pid_t pid)
{
	char path[32];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	return !stat(path, &st) && st.st_nlink > 3; /* ., .., the main thread */
}

/* Why a process cannot be measured any longer; NULL: it can. */
static const char *find_end(struct gc_proc *proc)
{
	const struct lb_proc_map *maps;
	bool changed;
	int err = lb_proc_refresh(proc->proc, &changed);

	if (!err && !lb_proc_maps(proc->proc, &maps) &&
	    !has_threads(lb_proc_pid(proc->proc)))
		err = -ESRCH;
	if (err)
		return err == -ESRCH ? "has exited" : NULL;
	if (!lb_proc_maps(proc->proc, &maps))
		return NULL;
	if (vdso_of(proc->proc) != proc->vdso_addr)
		return "has executed another program, which is not measured: "
		       "start again to measure it";
	if (!has_vms(proc))
		return "has unloaded a LuaJIT and is not measured any longer: "
		       "start again to measure it";
	return NULL;
}

static bool is_gone(struct lb_gc *gc, struct gc_proc *proc)
{
	uint32_t tgid = (uint32_t)lb_proc_pid(proc->proc);

	if (proc->gone)
		return true;
	proc->end = find_end(proc);
	if (!proc->end)
		return false;
	proc->gone = true;
	close_probes(proc);
	close_files(proc);
	if (gc->procs_fd >= 0)
		bpf_map_delete_elem(gc->procs_fd, &tgid);
	lb_proc_gone(proc->proc);
	return true;
}

int lb_gc_attach(struct lb_gc *gc, int procs_fd, const int *prog_fds, size_t n)
{
	gc->error[0] = 0;
	gc->procs_fd = procs_fd;
	for (size_t i = 0; i < gc->n_procs; i++) {
		struct gc_proc *proc = &gc->procs[i];
		int err;

		if (proc->attached || proc->gone)
			continue;
		err = attach_proc(proc, procs_fd, prog_fds, n);
		if (err == -ESRCH || (err && is_gone(gc, proc)))
			continue;
		if (err)
			return fail(gc, err,
				    "PID %d: the kernel refused a uprobe: %s",
				    lb_proc_pid(proc->proc), strerror(-err));
	}
	return 0;
}

size_t lb_gc_alive(struct lb_gc *gc)
{
	size_t n = 0;

	for (size_t i = 0; i < gc->n_procs; i++)
		n += !is_gone(gc, &gc->procs[i]);
	return n;
}

int lb_gc_next_end(struct lb_gc *gc)
{
	for (size_t i = 0; i < gc->n_procs; i++) {
		struct gc_proc *proc = &gc->procs[i];

		if (!is_gone(gc, proc) || !proc->end)
			continue;
		snprintf(gc->error, sizeof(gc->error), "PID %d %s",
			 lb_proc_pid(proc->proc), proc->end);
		proc->end = NULL;
		return lb_proc_pid(proc->proc);
	}
	return 0;
}

bool lb_gc_exact_phases(const struct lb_gc *gc)
{
	for (size_t i = 0; i < gc->n_procs; i++)
		for (size_t j = 0; j < gc->procs[i].entry.n_vms; j++)
			if (!gc->procs[i].files[j]->exact_phases)
				return false;
	return true;
}

/* ---- figures ---- */

static int read_size(const struct gc_proc *proc, const struct lj_offsets *off,
		     uint64_t g_addr, uint32_t field, uint64_t *size_ret)
{
	uint64_t size = 0;
	int err;

	*size_ret = 0;
	if (field == LJ_OFFSETS_NONE)
		return 0;
	err = lb_proc_read(proc->proc, g_addr + field, &size,
			   off->gc64 ? 8 : 4);
	if (!err)
		*size_ret = size;
	return err;
}

int lb_gc_read(const struct lb_gc *gc, int pid, unsigned int vm,
	       uint64_t g_addr, struct lb_gc_figures *figures_ret)
{
	const struct gc_proc *proc = proc_of(gc, pid);
	struct lb_gc_figures figures = { 0 };
	const struct lj_offsets *off;
	uint8_t state = 0;
	int err;

	if (!proc || vm >= proc->entry.n_vms)
		return -ENOENT;
	off = &proc->files[vm]->offsets;
	err = lb_proc_read(proc->proc, g_addr + off->g_gc_state, &state, 1);
	if (!err && state >= LB_GC_PHASES)
		err = -EFAULT; /* it was closed, something else is there */
	if (!err)
		err = read_size(proc, off, g_addr, off->g_gc_total,
				&figures.heap);
	if (!err)
		err = read_size(proc, off, g_addr, off->g_gc_threshold,
				&figures.threshold);
	if (!err)
		err = read_size(proc, off, g_addr, off->g_gc_debt,
				&figures.debt);
	if (!err)
		err = read_size(proc, off, g_addr, off->g_gc_estimate,
				&figures.estimate);
	if (err)
		return err;
	figures.state = state;
	*figures_ret = figures;
	return 0;
}
