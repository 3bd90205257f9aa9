/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A C program that loads Lua libraries at run time: `loader [-e CODE] LIB ...`.
 * Each gets a VM, which runs CODE; one whose name follows a `-` gets none until
 * a line comes in. It knows no Lua header: the library is whatever it is given.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBS_MAX 8

struct lib {
	void *handle;
	void *vm;
};

/* The address of a function, as one. */
static void *symbol(const struct lib *lib, const char *name)
{
	void *found = dlsym(lib->handle, name);

	if (!found) {
		fprintf(stderr, "loader: %s\n", dlerror());
		exit(1);
	}
	return found;
}

static void open_vm(struct lib *lib, const char *code)
{
	void *(*newstate)(void);
	void (*openlibs)(void *);
	int (*loadstring)(void *, const char *);
	int (*pcall)(void *, int, int, int);

	*(void **)&newstate = symbol(lib, "luaL_newstate");
	*(void **)&openlibs = symbol(lib, "luaL_openlibs");
	*(void **)&loadstring = symbol(lib, "luaL_loadstring");
	*(void **)&pcall = symbol(lib, "lua_pcall");
	lib->vm = newstate();
	if (!lib->vm) {
		fprintf(stderr, "loader: no memory for a VM\n");
		exit(1);
	}
	openlibs(lib->vm);
	if (loadstring(lib->vm, code) || pcall(lib->vm, 0, 0, 0)) {
		fprintf(stderr, "loader: CODE failed\n");
		exit(1);
	}
}

static struct lib load(const char *path)
{
	struct lib lib = { dlopen(path, RTLD_NOW | RTLD_LOCAL), NULL };

	if (!lib.handle) {
		fprintf(stderr, "loader: %s\n", dlerror());
		exit(1);
	}
	return lib;
}

int main(int argc, char **argv)
{
	struct lib libs[LIBS_MAX];
	const char *code = "";
	int n = 0;

	for (int i = 1; i < argc && n < LIBS_MAX; i++) {
		if (!strcmp(argv[i], "-e") && i + 1 < argc) {
			code = argv[++i];
			continue;
		}
		libs[n] = load(argv[i] + (argv[i][0] == '-'));
		if (argv[i][0] != '-')
			open_vm(&libs[n], code);
		n++;
	}
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF) {
		for (int i = 0; i < n; i++)
			if (!libs[i].vm)
				open_vm(&libs[i], code);
		puts("ready");
		fflush(stdout);
		while (getchar() != '\n' && !feof(stdin))
			;
	}
	return 0;
}
