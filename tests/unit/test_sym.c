/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Symbols: of programs that are compiled here, whole, stripped, with a separate
 * or a packed debug file, against what nm says; of hostile files; of a kernel
 * symbol list.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <lzma.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "debugfile.h"
#include "demangle.h"
#include "ksym.h"
#include "lb_test.h"
#include "sym.h"

static char dir[64];

static const char source[] =
	"int shown(int x) { return x * 7 + 1; }\n"
	"int __shown(int x) __attribute__((alias(\"shown\")));\n"
	"static __attribute__((noinline, used)) int hidden(int x)\n"
	"{ return x * 3 + shown(x); }\n"
	"__attribute__((weak)) int weak_one(int x) { return x - 1; }\n"
	"int strong_one(int x) __attribute__((alias(\"weak_one\")));\n"
	"int data_object = 4;\n"
	"__asm__(\".text\\n.globl bare_asm\\nbare_asm:\\n"
	"nop\\nnop\\nnop\\nret\\n.zero 16, 0xcc\\n\");\n"
	"int main(int c, char **v) { (void)v; return hidden(c) + data_object"
	" + weak_one(c) + strong_one(c); }\n";

__attribute__((format(printf, 1, 2))) static bool run(const char *format, ...)
{
	char command[2048];
	va_list args;
	int n = snprintf(command, sizeof(command), "cd %s && ", dir);

	va_start(args, format);
	vsnprintf(command + n, sizeof(command) - (size_t)n, format, args);
	va_end(args);
	return system(command) == 0;
}

static void path_in_dir(char *path, size_t size, const char *name)
{
	snprintf(path, size, "%s/%s", dir, name);
}

static struct lb_elf *open_elf(const char *name)
{
	char path[256];
	struct lb_elf *elf = NULL;
	int fd;

	path_in_dir(path, sizeof(path), name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_INT(lb_elf_open_fd(fd, path, &elf), 0);
	close(fd);
	return elf;
}

struct loaded {
	struct lb_elf *elf;
	struct lb_sym *sym;
};

static struct loaded load(const char *name, const struct lb_proc *proc)
{
	struct loaded loaded = { .elf = open_elf(name) };

	CHECK_INT(lb_sym_new(loaded.elf, proc, &loaded.sym), 0);
	return loaded;
}

static void unload(struct loaded *loaded)
{
	lb_sym_free(loaded->sym);
	lb_elf_free(loaded->elf);
}

/* vaddr and size as nm tells them, of the unstripped program. */
static bool nm_find(const char *file, const char *name, uint64_t *vaddr_ret,
		    uint64_t *size_ret)
{
	char command[512], line[1024], found[512], type;
	bool ok = false;
	FILE *out;

	snprintf(command, sizeof(command), "nm -S %s/%s", dir, file);
	out = popen(command, "r");
	while (out && fgets(line, sizeof(line), out)) {
		unsigned long long vaddr, size = 0;

		if ((sscanf(line, "%llx %llx %c %511s", &vaddr, &size, &type,
			    found) == 4 ||
		     sscanf(line, "%llx %c %511s", &vaddr, &type, found) ==
			     3) &&
		    !strcmp(found, name)) {
			*vaddr_ret = vaddr;
			*size_ret = size;
			ok = true;
		}
		size = 0;
	}
	if (out)
		pclose(out);
	return ok;
}

static void check_function(struct loaded *loaded, const char *file,
			   const char *name)
{
	uint64_t vaddr, size, start = 0;

	if (!nm_find(file, name, &vaddr, &size)) {
		CHECK(!"nm knows the function");
		return;
	}
	CHECK(size > 1);
	CHECK_STR(lb_sym_find(loaded->sym, vaddr, 0, &start), name);
	CHECK(start == vaddr);
	CHECK_STR(lb_sym_find(loaded->sym, vaddr + size - 1, 0, NULL), name);
	const char *behind = lb_sym_find(loaded->sym, vaddr + size, 0, NULL);

	CHECK(!behind || strcmp(behind, name));
}

static void test_find_own_tables(void)
{
	struct loaded loaded = load("plain", NULL);
	uint64_t vaddr, size;

	check_function(&loaded, "plain", "shown"); /* not __shown */
	check_function(&loaded, "plain", "hidden");
	check_function(&loaded, "plain", "strong_one"); /* not weak_one */
	check_function(&loaded, "plain", "main");
	CHECK(nm_find("plain", "data_object", &vaddr, &size));
	CHECK(!lb_sym_find(loaded.sym, vaddr, 0, NULL));
	CHECK(!lb_sym_find(loaded.sym, 0, 0, NULL));
	CHECK(!lb_sym_find(loaded.sym, UINT64_MAX, UINT64_MAX, NULL));
	unload(&loaded);
}

static void test_find_symbol_without_size(void)
{
	struct loaded loaded = load("plain", NULL);
	uint64_t vaddr, size;

	CHECK(nm_find("plain", "bare_asm", &vaddr, &size));
	CHECK_INT(size, 0);
	CHECK(!lb_sym_find(loaded.sym, vaddr + 2, 0, NULL));
	CHECK_STR(lb_sym_find(loaded.sym, vaddr + 2, vaddr + 4, NULL),
		  "bare_asm");
	CHECK(!lb_sym_find(loaded.sym, vaddr + 4, vaddr + 4, NULL));
	unload(&loaded);
}

/* Each function that nm lists in this program begins where it says. */
static void test_find_agrees_with_nm(void)
{
	struct lb_elf *elf = NULL;
	struct lb_sym *sym = NULL;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	char line[4096], type, command[128];
	unsigned long long vaddr, size;
	unsigned int n = 0, right = 0;

	CHECK_INT(lb_elf_open_fd(fd, "exe", &elf), 0);
	CHECK_INT(lb_sym_new(elf, NULL, &sym), 0);
	snprintf(command, sizeof(command), "nm -S /proc/%d/exe", (int)getpid());

	FILE *out = popen(command, "r");

	while (out && fgets(line, sizeof(line), out)) {
		uint64_t start = 0;

		if (sscanf(line, "%llx %llx %c", &vaddr, &size, &type) != 3 ||
		    !strchr("tTwW", type) || !size)
			continue;
		n++;
		right += lb_sym_find(sym, vaddr, 0, &start) && start == vaddr;
	}
	if (out)
		pclose(out);
	CHECK(n > 100);
	CHECK_INT(right, n);
	lb_sym_free(sym);
	lb_elf_free(elf);
	close(fd);
}

static void test_find_stripped(void)
{
	struct loaded loaded = load("stripped", NULL);
	uint64_t vaddr, size;

	CHECK(nm_find("plain", "hidden", &vaddr, &size));
	CHECK(!lb_sym_find(loaded.sym, vaddr, 0, NULL));
	unload(&loaded);
	loaded = load("exported", NULL); /* stripped, but shown is in .dynsym */
	check_function(&loaded, "dynamic", "shown");
	CHECK(nm_find("dynamic", "hidden", &vaddr, &size));
	CHECK(!lb_sym_find(loaded.sym, vaddr, 0, NULL));
	unload(&loaded);
}

static void test_find_debuglink(void)
{
	struct loaded loaded = load("linked", NULL);

	check_function(&loaded, "plain", "hidden");
	unload(&loaded);
	/* without a build ID the checksum decides */
	loaded = load("linked_crc", NULL);
	check_function(&loaded, "plain", "hidden");
	unload(&loaded);
}

static void test_find_debuglink_wrong_file(void)
{
	struct loaded loaded = load("wrong_id", NULL);
	uint64_t vaddr, size;

	CHECK(nm_find("plain", "hidden", &vaddr, &size));
	CHECK(!lb_sym_find(loaded.sym, vaddr, 0, NULL));
	unload(&loaded);
	loaded = load("wrong_crc", NULL);
	CHECK(!lb_sym_find(loaded.sym, vaddr, 0, NULL));
	unload(&loaded);
}

static void test_find_mini_debug_info(void)
{
	struct loaded loaded;

	if (!run("xz -c plain.debug > mini.xz && cp stripped mini && "
		 "objcopy --add-section .gnu_debugdata=mini.xz mini "
		 "2>/dev/null")) {
		SKIP("no xz or objcopy");
		return;
	}
	loaded = load("mini", NULL);
	check_function(&loaded, "plain", "hidden");
	unload(&loaded);
}

/* A debug file by build ID in the root of the target. */
static void test_find_build_id_in_root(void)
{
	struct lb_elf *elf;
	uint8_t id[LB_BUILD_ID_MAX];
	char hex[2 * LB_BUILD_ID_MAX + 1];
	struct lb_proc *proc = NULL;
	struct loaded loaded;
	size_t size = 0;
	pid_t pid;
	int ready[2];
	char byte;

	if (geteuid()) {
		SKIP("not root");
		return;
	}
	elf = open_elf("stripped");
	CHECK_INT(lb_elf_build_id(elf, id, &size), 0);
	for (size_t i = 0; i < size; i++)
		sprintf(hex + 2 * i, "%02x", id[i]);
	lb_elf_free(elf);
	CHECK(run("mkdir -p root/usr/lib/debug/.build-id/%.2s && cp plain.debug"
		  " root/usr/lib/debug/.build-id/%.2s/%s.debug",
		  hex, hex, hex + 2));
	CHECK_INT(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		char path[128];

		path_in_dir(path, sizeof(path), "root");
		if (!chroot(path) && write(ready[1], "r", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1) {
		SKIP("no chroot");
	} else {
		CHECK_INT(lb_proc_open(pid, &proc), 0);
		loaded = load("stripped", proc);
		check_function(&loaded, "plain", "hidden");
		unload(&loaded);
	}
	lb_proc_free(proc);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(ready[0]);
}

static void test_find_cxx(void)
{
	static const char cxx[] =
		"namespace app { template <typename T> struct Box {"
		" __attribute__((noinline)) T get(T t) { return t + 1; } }; }\n"
		"template struct app::Box<int>;\n"
		"int main(int c, char **) { return app::Box<int>().get(c); }\n";
	char path[128];
	FILE *file;
	struct loaded loaded;
	uint64_t vaddr, size;

	path_in_dir(path, sizeof(path), "box.cc");
	file = fopen(path, "w");
	fputs(cxx, file);
	fclose(file);
	if (!run("c++ -O1 -o box box.cc 2>/dev/null")) {
		SKIP("no c++");
		return;
	}
	loaded = load("box", NULL);
	CHECK(nm_find("box", "_ZN3app3BoxIiE3getEi", &vaddr, &size));
	CHECK_STR(lb_sym_find(loaded.sym, vaddr, 0, NULL),
		  "app::Box<int>::get(int)");
	unload(&loaded);
}

static void check_demangle(const char *symbol, const char *want)
{
	char *text = lb_demangle(symbol);

	CHECK_STR(text, want);
	free(text);
}

static void test_demangle(void)
{
	check_demangle("main", "main");
	check_demangle("", "");
	check_demangle("_Z", "_Z");
	check_demangle("_ZN3foo3barEv", "foo::bar()");
	check_demangle("_ZNSt6vectorIiSaIiEE9push_backERKi",
		       "std::vector<int, std::allocator<int> >::push_back("
		       "int const&)");
	check_demangle("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
		       "core::fmt::Formatter::pad");
	check_demangle("_ZN58_$LT$alloc..string..String$u20$as$u20$core.."
		       "fmt..Debug$GT$3fmt17h0123456789abcdefE",
		       "<alloc::string::String as core::fmt::Debug>::fmt");
	check_demangle("a;b\nc\xff", "a\\x3bb\\x0ac\\xff");
	check_demangle("_ZN3fo", "_ZN3fo"); /* cut */
}

/* A name of 300 bytes that stands for a gigabyte. */
static void make_bomb(char *name, const char *first, int levels)
{
	static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

	name += sprintf(name, "_Z1f%s1A4pairIS_S_E", first);
	for (int i = 1; i < levels; i++)
		name += sprintf(name, "S0_IS%c_S%c_E", digits[i], digits[i]);
}

static void test_demangle_is_bounded(void)
{
	char name[2048];
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int levels = 16; levels < 34; levels++) {
		make_bomb(name, "", levels);
		check_demangle(name, name);
		/* hide the references' first places in an identifier */
		make_bomb(name, "33S1_S2_S3_S4_S5_S6_S7_S8_S9_SA_SB_x", levels);
		free(lb_demangle(name));
		make_bomb(name, "PFvvE4S1_x", levels);
		free(lb_demangle(name));
	}
	/* __cxa_demangle() of libstdc++ 12 does not come back from this one */
	check_demangle("_Z1fIXsr1aBCE", "_Z1fIXsr1aBCE");
	memset(name, 'P', 1500);
	memcpy(name, "_Z1f", 4);
	strcpy(name + 1500, "i");
	check_demangle(name, name); /* too long */
	clock_gettime(CLOCK_MONOTONIC, &b);
	CHECK(b.tv_sec - a.tv_sec < 5);
	/* what is harmless is not refused */
	make_bomb(name, "", 3);
	char *text = lb_demangle(name);

	CHECK(!strncmp(text, "f(A, pair<A, A>, ", 17));
	free(text);
}

static uint8_t *read_file(const char *name, size_t *size_ret)
{
	char path[256];
	struct stat st;
	uint8_t *data;
	int fd;

	path_in_dir(path, sizeof(path), name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && !fstat(fd, &st));
	*size_ret = (size_t)st.st_size;
	data = malloc(*size_ret);
	CHECK(read(fd, data, *size_ret) == (ssize_t)*size_ret);
	close(fd);
	return data;
}

static uint32_t next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static void use_image(const uint8_t *data, size_t size)
{
	struct lb_elf *elf;
	struct lb_sym *sym;

	if (lb_elf_open_mem(data, size, "/nowhere/image", &elf))
		return;
	if (!lb_sym_new(elf, NULL, &sym)) {
		for (uint64_t vaddr = 0x1000; vaddr < 0x1400; vaddr += 16)
			lb_sym_find(sym, vaddr, vaddr + 8, NULL);
		lb_sym_free(sym);
	}
	lb_elf_free(elf);
}

static void hostile_file(const char *name)
{
	size_t size, n_changed;
	uint8_t *data = read_file(name, &size);
	uint8_t *copy = malloc(size);
	uint32_t state = 12345;

	for (int round = 0; round < 400; round++) {
		memcpy(copy, data, size);
		n_changed = 1 + next_random(&state) % 8;
		for (size_t i = 0; i < n_changed; i++) {
			/* headers are at both ends of a file */
			uint32_t r = next_random(&state);
			size_t at = r & 1 ? r % 1024 : size - 1 - r % 8192;

			copy[at % size] = r & 2 ? 0xff : (uint8_t)(r >> 24);
		}
		use_image(copy, size);
	}
	for (size_t cut = 0; cut < size; cut += size / 97)
		use_image(data, cut);
	free(copy);
	free(data);
}

static void test_hostile_files(void)
{
	hostile_file("plain");
	hostile_file("linked");
	if (run("test -e mini"))
		hostile_file("mini");
}

/* An xz stream that unpacks to more than anybody needs. */
static void test_unpack_too_big(void)
{
	size_t in_size = 80U << 20, out_size = 0, room = 1 << 20;
	uint8_t *in = calloc(1, in_size), *out = malloc(room);
	struct lb_elf *elf = NULL, *mini = NULL;
	char path[128];
	FILE *file;

	CHECK_INT(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC32, NULL, in,
					  in_size, out, &out_size, room),
		  LZMA_OK);
	path_in_dir(path, sizeof(path), "big.xz");
	file = fopen(path, "w");
	fwrite(out, 1, out_size, file);
	fclose(file);
	free(in);
	free(out);
	if (!run("cp stripped big && objcopy --add-section "
		 ".gnu_debugdata=big.xz big 2>/dev/null")) {
		SKIP("no objcopy");
		return;
	}
	elf = open_elf("big");
	CHECK_INT(lb_debugfile_unpack(elf, &mini), -E2BIG);
	lb_elf_free(elf);
}

static int read_ksym(const char *text, struct lb_ksym **ksym_ret)
{
	FILE *file = fmemopen((void *)text, strlen(text), "r");
	int err = lb_ksym_read(file, ksym_ret);

	fclose(file);
	return err;
}

static void test_ksym_find(void)
{
	struct lb_ksym *ksym = NULL;

	CHECK_INT(read_ksym("ffffffff81000000 T _text\n"
			    "ffffffff81000000 T startup\n"
			    "ffffffff81001000 t local_one\n"
			    "ffffffff81001000 T global_one\n"
			    "ffffffff81001800 D data\n"
			    "ffffffffc0000000 t in_module\t[ext4]\n"
			    "ffffffff81002000 W weak_one\n"
			    "garbage\n\nffffffff81003000\n"
			    "ffffffff81003000 T\n",
			    &ksym),
		  0);
	CHECK(!lb_ksym_find(ksym, 0));
	CHECK(!lb_ksym_find(ksym, 0xffffffff80ffffffULL));
	CHECK_STR(lb_ksym_find(ksym, 0xffffffff81000000ULL), "startup");
	CHECK_STR(lb_ksym_find(ksym, 0xffffffff81000fffULL), "startup");
	CHECK_STR(lb_ksym_find(ksym, 0xffffffff81001900ULL), "global_one");
	CHECK_STR(lb_ksym_find(ksym, 0xffffffff81002000ULL), "weak_one");
	CHECK_STR(lb_ksym_find(ksym, 0xffffffffc0000010ULL), "in_module");
	CHECK(!lb_ksym_find(ksym, 0xffffffffffffffffULL));
	lb_ksym_free(ksym);
}

static void test_ksym_hidden(void)
{
	struct lb_ksym *ksym = NULL;

	CHECK_INT(read_ksym("0000000000000000 T _text\n"
			    "0000000000000000 T startup\n",
			    &ksym),
		  -EACCES);
	CHECK_INT(read_ksym("\n", &ksym), -ENOENT);
	CHECK(!ksym);
}

static void test_ksym_of_this_kernel(void)
{
	struct lb_ksym *ksym = NULL;
	int err = lb_ksym_new(&ksym);

	if (err) {
		CHECK(err == -EACCES || err == -ENOENT);
		SKIP("kernel symbols are hidden");
		return;
	}
	CHECK(!lb_ksym_find(ksym, 0x1000));
	lb_ksym_free(ksym);
}

static bool make_programs(void)
{
	char path[128];
	FILE *file;

	strcpy(dir, "/tmp/lb_test_sym_XXXXXX");
	if (!mkdtemp(dir))
		return false;
	path_in_dir(path, sizeof(path), "plain.c");
	file = fopen(path, "w");
	fputs(source, file);
	fclose(file);
	return run("cc -O1 -g -Wl,--build-id=sha1 -o plain plain.c && "
		   "objcopy --only-keep-debug plain plain.debug && "
		   "strip -o stripped plain && cp stripped linked && "
		   "objcopy --add-gnu-debuglink=plain.debug linked && "
		   /* same code, so that plain's addresses hold */
		   "objcopy -R .note.gnu.build-id plain noid && "
		   "objcopy --only-keep-debug noid noid.debug 2>/dev/null && "
		   "strip -o linked_crc noid && "
		   "objcopy --add-gnu-debuglink=noid.debug linked_crc && "
		   /* another file under the name */
		   "cp stripped wrong_id && cp noid.debug other.debug && "
		   "objcopy --add-gnu-debuglink=other.debug wrong_id && "
		   "cp noid.debug changed.debug && strip -o wrong_crc noid && "
		   "objcopy --add-gnu-debuglink=changed.debug wrong_crc && "
		   "printf x >> changed.debug && "
		   "cc -O1 -g -rdynamic -Wl,--build-id=sha1 -o dynamic plain.c"
		   " && strip -o exported dynamic");
}

int main(void)
{
	static const struct lb_test_case cases[] = {
		LB_TEST(test_find_own_tables),
		LB_TEST(test_find_symbol_without_size),
		LB_TEST(test_find_agrees_with_nm),
		LB_TEST(test_find_stripped),
		LB_TEST(test_find_debuglink),
		LB_TEST(test_find_debuglink_wrong_file),
		LB_TEST(test_find_mini_debug_info),
		LB_TEST(test_find_build_id_in_root),
		LB_TEST(test_find_cxx),
		LB_TEST(test_demangle),
		LB_TEST(test_demangle_is_bounded),
		LB_TEST(test_hostile_files),
		LB_TEST(test_unpack_too_big),
		LB_TEST(test_ksym_find),
		LB_TEST(test_ksym_hidden),
		LB_TEST(test_ksym_of_this_kernel),
	};
	int status;

	if (!make_programs()) {
		printf("0 passed, 0 failed, 1 skipped: no compiler\n");
		return 77;
	}
	status = LB_TEST_MAIN(cases);
	run("rm -r %s", dir);
	return status;
}
