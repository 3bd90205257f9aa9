/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process as /proc shows it: mappings, files behind them, memory.
 * Reads only; never attaches.
 */
#ifndef LB_PROC_H
#define LB_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct lb_proc;

enum lb_map_kind {
	LB_MAP_FILE, /* a file, perhaps deleted, memfd included */
	LB_MAP_VDSO,
	LB_MAP_VSYSCALL,
	LB_MAP_ANON, /* no file: mcode, other JITs, [heap], [stack] */
};

struct lb_proc_map { /* one line of /proc/PID/maps */
	uint64_t start;
	uint64_t end;
	uint64_t off;
	uint64_t ino;
	uint32_t dev_major;
	uint32_t dev_minor;
	bool exec;
	bool readable;
	bool writable;
	bool deleted;
	enum lb_map_kind kind;
	const char *path; /* unescaped, without " (deleted)"; "" for none */
};

struct lb_proc_maps { /* all lines */
	struct lb_proc_map *maps;
	size_t n;
	char *paths; /* storage of the paths */
};

/**
 * lb_proc_parse_maps() - text of /proc/PID/maps into mappings sorted by start
 * A line that is malformed or overlaps the one before is left out.
 * @maps_ret: caller frees with lb_proc_maps_fini()
 * Return: 0, -ENOMEM.
 */
int lb_proc_parse_maps(const char *text, size_t size,
		       struct lb_proc_maps *maps_ret);
void lb_proc_maps_fini(struct lb_proc_maps *maps);
/** Start time in clock ticks from the text of /proc/PID/stat. -EBADMSG. */
int lb_proc_parse_stat(const char *text, uint64_t *start_ticks_ret);

/**
 * lb_proc_open() - a process by PID, mappings read
 * Return: 0, -ESRCH (no such process), -EACCES/-EPERM, -ENOMEM.
 */
int lb_proc_open(pid_t pid, struct lb_proc **proc_ret);
void lb_proc_free(struct lb_proc *proc);
/** The process is gone: give its descriptor back. Mappings stay known. */
void lb_proc_gone(struct lb_proc *proc);
pid_t lb_proc_pid(const struct lb_proc *proc);
/** Start time in clock ticks since boot: with the PID it names a process. */
uint64_t lb_proc_start_ticks(const struct lb_proc *proc);
/** Read maps again. *changed_ret: an executable mapping came, went or moved. */
int lb_proc_refresh(struct lb_proc *proc, bool *changed_ret);
/** All mappings, sorted by start; valid until refresh or free. */
size_t lb_proc_maps(const struct lb_proc *proc,
		    const struct lb_proc_map **maps_ret);
/** The mapping that contains @addr, or NULL. */
const struct lb_proc_map *lb_proc_map_at(const struct lb_proc *proc,
					 uint64_t addr);
/**
 * lb_proc_open_map() - open the file behind a mapping, for reading
 * Through /proc/PID/map_files (works for deleted files and other mount
 * namespaces), else /proc/PID/root + path with device and inode compared.
 * Return: 0, -ENOENT, -ESTALE (another file has that path now), -EACCES.
 */
int lb_proc_open_map(const struct lb_proc *proc, const struct lb_proc_map *map,
		     int *fd_ret);
/** Open @path (absolute) as the process sees it, for debug files. */
int lb_proc_open_path(const struct lb_proc *proc, const char *path,
		      int *fd_ret);
/**
 * lb_proc_read() - copy target memory (process_vm_readv)
 * Return: 0 when all @size bytes were read, -EFAULT (not or not wholly
 * mapped), -ESRCH, -EPERM.
 */
int lb_proc_read(const struct lb_proc *proc, uint64_t addr, void *buf,
		 size_t size);
/** /proc/PID/comm into @comm_ret of 16 bytes. */
int lb_proc_comm(pid_t pid, char *comm_ret);

#endif
