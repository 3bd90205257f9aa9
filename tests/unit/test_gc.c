/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of the collector of a file, and of this very process, which
 * maps a LuaJIT without running it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "gc.h"
#include "lb.h"
#include "lb_test.h"

#define LIB "/usr/lib/x86_64-linux-gnu/libluajit-5.1.so.2"

static bool read_file(const char *path, struct lb_gc_file *file)
{
	struct lb_elf *elf;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	CHECK_INT(lb_elf_open_fd(fd, path, &elf), 0);
	close(fd);
	CHECK_INT(lb_gc_file_read(elf, file), 0);
	lb_elf_free(elf);
	return true;
}

static void test_file_with_a_vm(void)
{
	struct lb_gc_file file = { .has_vm = false };
	struct lj_offsets table;
	const char *name;

	if (!read_file(LIB, &file)) {
		SKIP("luajit: no libluajit");
		return;
	}
	CHECK(file.has_vm);
	CHECK(file.exact_phases);
	CHECK(!file.missing);
	CHECK(file.probes.n > 10);
	CHECK_INT(lb_offsets_find(&file.luajit, &table, &name), 0);
	CHECK_INT(file.offsets.g_gc_total, table.g_gc_total);
	CHECK_INT(file.offsets.g_gc_threshold, table.g_gc_threshold);
	CHECK_INT(file.offsets.g_gc_state, table.g_gc_state);
	CHECK_INT(file.offsets.g_gc_debt, table.g_gc_debt);
	CHECK_INT(file.offsets.g_gc_estimate, table.g_gc_estimate);
	CHECK_INT(file.offsets.vm_gc, table.vm_gc);
	lb_probes_fini(&file.probes);
}

static void test_file_without(void)
{
	struct lb_gc_file file = { .has_vm = true };

	CHECK(read_file("/proc/self/exe", &file));
	CHECK(!file.has_vm);
	CHECK_INT(file.probes.n, 0);
}

static void test_processes(void)
{
	struct lb_gc_figures figures;
	struct lb_gc *gc;
	int pid = getpid();

	CHECK_INT(lb_gc_new(&gc), 0);
	CHECK_INT(lb_gc_add_pid(gc, pid), -ENOENT);
	CHECK(strstr(lb_gc_error(gc), "no LuaJIT in it"));
	CHECK_INT(lb_gc_add_pid(gc, 1 << 22), -ESRCH);
	CHECK_INT(lb_gc_read(gc, pid, 0, 4096, &figures), -ENOENT);
	CHECK_INT(lb_gc_alive(gc), 0);

	void *lib = dlopen(LIB, RTLD_NOW);

	if (!lib) {
		SKIP("luajit: no libluajit");
		lb_gc_free(gc);
		return;
	}
	CHECK_INT(lb_gc_add_pid(gc, pid), 0);
	CHECK_STR(lb_gc_error(gc), "");
	CHECK_INT(lb_gc_add_pid(gc, pid), 0);
	CHECK_INT(lb_gc_alive(gc), 1);
	CHECK(lb_gc_exact_phases(gc));
	CHECK_INT(lb_gc_read(gc, pid, 0, 8, &figures), -EFAULT);
	CHECK_INT(lb_gc_read(gc, pid, 1, 8, &figures), -ENOENT);
	/* no map there: nothing may be attached, and it says so */
	CHECK_INT(lb_gc_attach(gc, -1, NULL, 0), -EBADF);
	CHECK(strstr(lb_gc_error(gc), "refused"));
	CHECK_INT(lb_gc_next_end(gc), 0);
	dlclose(lib);
	CHECK_INT(lb_gc_next_end(gc), pid);
	CHECK(strstr(lb_gc_error(gc), "has unloaded a LuaJIT"));
	CHECK_INT(lb_gc_next_end(gc), 0);
	CHECK_INT(lb_gc_alive(gc), 0);
	lb_gc_free(gc);
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_file_with_a_vm),
		LB_TEST(test_file_without),
		LB_TEST(test_processes),
	};

	return LB_TEST_MAIN(cases);
}
