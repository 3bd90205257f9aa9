/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command lj-offsets: debug info of a build of LuaJIT -> its entry of
 * bpf_c/lj_offsets.h; and comparing builds with that table and each other.
 * Without debug info: what the machine code shows.
 */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build.h"
#include "fields.h"
#include "offsets.h"

#define NAME_MAX_LEN 128

static const char usage_text[] =
	"usage: lj-offsets [-h] [-V] [-j] [-d DEBUG] [-n NAME] [-s TEXT] FILE\n"
	"       lj-offsets [-d DEBUG] -c FILE\n"
	"       lj-offsets --diff A B\n"
	"       lj-offsets [-j] [-n NAME] -t TABLE COLUMN\n"
	"\n"
	"Struct offsets of a LuaJIT build from its debug info, as an entry of\n"
	"bpf_c/lj_offsets.h.\n"
	"\n"
	"FILE is a binary, a library, a static archive or a separate debug "
	"file. Without\n"
	"debug info, fields are read from its machine code as far as it shows "
	"them.\n"
	"\n"
	"options:\n"
	"  -h, --help            show this text and exit\n"
	"  -V, --version         show the version and exit\n"
	"  -j, --json            print JSON, not C\n"
	"  -d DEBUG, --debug-file DEBUG\n"
	"                        FILE's debug info is in DEBUG\n"
	"  -n NAME, --name NAME  name of the entry\n"
	"  -s TEXT, --source TEXT\n"
	"                        where FILE comes from, for the comment\n"
	"  -c, --check           compare FILE with the table that is built in\n"
	"      --diff            print the fields in which builds A and B "
	"differ\n"
	"  -t TABLE, --table TABLE\n"
	"                        take COLUMN of a table of offsets\n"
	"\n"
	"examples:\n"
	"  lj-offsets libluajit-5.1.so.2      # entry of that build\n"
	"  lj-offsets /usr/lib/debug/.build-id/97/9be6.debug\n"
	"                                     # from a separate debug file\n"
	"  lj-offsets -d luajit.debug luajit  # that file's debug info is "
	"there\n"
	"  lj-offsets -c /usr/bin/luajit      # does the table know it?\n"
	"  lj-offsets --diff old.so new.so    # what moved between two builds\n"
	"  lj-offsets -j libluajit.a          # for other programs\n";

static const char no_debug_info_hint[] =
	"install the package with its debug symbols, or name the debug file "
	"with --debug-file";

enum mode { PRINT, CHECK, DIFF, TABLE };

struct options {
	enum mode mode;
	bool json;
	const char *debug_path;
	const char *name;
	const char *source;
	const char *table;
};

__attribute__((format(printf, 1, 2))) static int usage_error(const char *format,
							     ...)
{
	va_list args;

	fprintf(stderr, "lj-offsets: ");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\nhint: see lj-offsets --help\n");
	return 2;
}

static int say_error(const struct lb_build_error *error)
{
	fprintf(stderr, "lj-offsets: %s\nhint: %s\n", error->text, error->hint);
	return 1;
}

/* ---- entries ---- */

/* Of the entries with the same marks, the one that is nearest. */
static const struct lj_offsets *nearest_entry(const struct lj_offsets *offsets,
					      const char **name_ret,
					      size_t *n_wrong_ret)
{
	const struct lb_luajit marks = lb_offsets_marks(offsets);
	const struct lj_offsets *entry, *nearest = NULL;
	const char *name;

	for (size_t i = 0; !lb_offsets_entry(i, &entry, &name); i++) {
		size_t n_wrong = 0;

		if (!lb_offsets_marks_equal(&marks, entry))
			continue;
		for (size_t j = 0; j < lb_n_fields; j++)
			n_wrong += lb_field_get(entry, &lb_fields[j]) !=
				   lb_field_get(offsets, &lb_fields[j]);
		if (nearest && n_wrong >= *n_wrong_ret)
			continue;
		nearest = entry;
		*name_ret = name;
		*n_wrong_ret = n_wrong;
	}
	return nearest;
}

/* As asked for; else that of the entry which is there; else one is made up. */
static void name_build(const struct lb_build *build, const char *asked,
		       char *name_ret)
{
	const char *known;
	size_t n_wrong;

	if (asked)
		snprintf(name_ret, NAME_MAX_LEN, "%s", asked);
	else if (nearest_entry(&build->offsets, &known, &n_wrong))
		snprintf(name_ret, NAME_MAX_LEN, "%s", known);
	else
		snprintf(name_ret, NAME_MAX_LEN, "LuaJIT of %s, %s",
			 build->file,
			 build->offsets.gc64 ? "GC64" : "32-bit references");
	/* C and JSON alike: nothing that would need escaping */
	for (char *p = name_ret; *p; p++)
		if (*p == '"' || *p == '\\' || *p < ' ' || *p > '~')
			*p = '?';
}

/* File names come in here; they must not end the comment. */
static void print_comment_line(const char *text)
{
	printf("\t * ");
	for (const char *p = text; *p; p++)
		putchar(*p < ' ' || *p > '~' ||
					(*p == '/' && p > text && p[-1] == '*')
				? '?'
				: *p);
	putchar('\n');
}

static void print_c(const struct lb_build *build, const char *name)
{
	printf("\t/*\n");
	for (int i = 0; i < LB_BUILD_SOURCES; i++)
		if (build->source[i][0])
			print_comment_line(build->source[i]);
	printf("\t */\n\t{ .name = \"%s\",\n\t  .offsets = {\n", name);
	for (size_t i = 0; i < lb_n_fields; i++) {
		uint32_t value = lb_field_get(&build->offsets, &lb_fields[i]);

		if (build->unknown[i])
			continue;
		if (value == LJ_OFFSETS_NONE)
			printf("\t\t  .%s = LJ_OFFSETS_NONE,\n",
			       lb_fields[i].name);
		else
			printf("\t\t  .%s = %u,\n", lb_fields[i].name, value);
	}
	printf("\t  } },\n");
}

static void print_json_text(const char *text)
{
	putchar('"');
	for (const char *p = text; *p; p++) {
		unsigned char c = (unsigned char)*p;

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < ' ' || c > '~')
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void print_json(const struct lb_build *build, const char *name)
{
	const char *comma = "", *field_comma = "";

	printf("{\n  \"name\": \"%s\",\n  \"source\": [", name);
	for (int i = 0; i < LB_BUILD_SOURCES; i++) {
		if (!build->source[i][0])
			continue;
		printf("%s\n    ", comma);
		print_json_text(build->source[i]);
		comma = ",";
	}
	printf("\n  ],\n  \"offsets\": {");
	for (size_t i = 0; i < lb_n_fields; i++) {
		uint32_t value = lb_field_get(&build->offsets, &lb_fields[i]);

		if (build->unknown[i])
			continue;
		printf("%s\n    \"%s\": ", field_comma, lb_fields[i].name);
		field_comma = ",";
		if (value == LJ_OFFSETS_NONE)
			printf("null");
		else
			printf("%u", value);
	}
	printf("\n  }\n}\n");
}

/* ---- comparing ---- */

static const char *number(uint32_t value, char *buf, size_t size)
{
	if (value == LJ_OFFSETS_NONE)
		return "-";
	snprintf(buf, size, "%u", value);
	return buf;
}

/* Fields that differ, under a heading. Return: how many. */
static size_t print_diff(const struct lj_offsets *a, const struct lj_offsets *b,
			 const char *a_name, const char *b_name)
{
	size_t n = 0;
	char buf[2][16];

	for (size_t i = 0; i < lb_n_fields; i++) {
		uint32_t va = lb_field_get(a, &lb_fields[i]);
		uint32_t vb = lb_field_get(b, &lb_fields[i]);

		if (va == vb)
			continue;
		if (!n++)
			printf("%-16s %-20.20s %-.20s\n", "FIELD", a_name,
			       b_name);
		printf("%-16s %-20s %s\n", lb_fields[i].name,
		       number(va, buf[0], sizeof(buf[0])),
		       number(vb, buf[1], sizeof(buf[1])));
	}
	return n;
}

static int say_no_entry(const struct lj_offsets *marks, const char *path,
			bool has_debug_info)
{
	fprintf(stderr,
		"lj-offsets: %s: no entry has its marks: %s, G2DISP %u, cur_L "
		"%d, vmstate %u, C frame %u, static dispatch %u\n"
		"hint: %s%s\n",
		path, marks->gc64 ? "GC64" : "32-bit references", marks->g2disp,
		(int)marks->g_cur_l, marks->g_vmstate, marks->cframe_size,
		marks->static_dispatch,
		has_debug_info ? "add it to the header: make offsets FILES="
			       : no_debug_info_hint,
		has_debug_info ? path : "");
	return 1;
}

static int check(const struct lb_build *build, const char *path)
{
	const struct lj_offsets *entry;
	const char *name;
	size_t n_wrong;

	entry = nearest_entry(&build->offsets, &name, &n_wrong);
	if (!entry)
		return say_no_entry(&build->offsets, path, true);
	if (!n_wrong) {
		printf("%s: entry \"%s\" is right in all %zu fields\n", path,
		       name, lb_n_fields);
		return 0;
	}
	print_diff(entry, &build->offsets, "ENTRY", "FILE");
	fprintf(stderr,
		"lj-offsets: %s: entry \"%s\" is wrong in %zu of %zu fields\n"
		"hint: renew it: make offsets FILES=%s\n",
		path, name, n_wrong, lb_n_fields, path);
	return 1;
}

/* ---- files without debug info ---- */

/* Where the code shows a field and the entry has another value. */
static size_t print_scan_diff(const struct lb_scan *scan,
			      const struct lj_offsets *entry)
{
	struct lj_offsets seen = *entry;

	for (size_t i = 0; i < lb_n_fields; i++)
		if (scan->known[i])
			lb_field_set(
				&seen, &lb_fields[i],
				lb_field_get(&scan->offsets, &lb_fields[i]));
	return print_diff(entry, &seen, "ENTRY", "CODE");
}

/* All entries with its marks: the code may not tell them apart. */
static int check_scan(const struct lb_scan *scan, const char *path)
{
	const struct lb_luajit marks = lb_offsets_marks(&scan->offsets);
	const struct lj_offsets *entry;
	const char *name;
	size_t n_wrong, n_right = 0, n = 0;

	for (size_t i = 0; !lb_offsets_entry(i, &entry, &name); i++) {
		if (!lb_offsets_marks_equal(&marks, entry))
			continue;
		n++;
		n_wrong = print_scan_diff(scan, entry);
		if (n_wrong) {
			fprintf(stderr,
				"lj-offsets: %s: no debug info; entry \"%s\" "
				"differs from its code in %zu of %u fields\n"
				"hint: %s\n",
				path, name, n_wrong, scan->n_known,
				no_debug_info_hint);
			continue;
		}
		n_right++;
		printf("%s: no debug info; entry \"%s\" agrees with its code "
		       "in all %u fields that it shows, of %zu\n",
		       path, name, scan->n_known, lb_n_fields);
	}
	if (!n)
		return say_no_entry(&scan->offsets, path, false);
	return n_right == n ? 0 : 1;
}

#define HEADING_MAX 20

/* Of two files with the same name the ends of the paths. */
static const char *heading(const char *path, const char *file, bool same)
{
	size_t len = strlen(path);

	if (!same)
		return file;
	return len > HEADING_MAX ? path + len - HEADING_MAX : path;
}

static int diff(char *const *paths)
{
	struct lb_build_error error;
	struct lb_build builds[2];

	for (int i = 0; i < 2; i++)
		if (lb_build_read(paths[i], NULL, &builds[i], &error))
			return say_error(&error);

	bool same = !strcmp(builds[0].file, builds[1].file);

	if (!print_diff(&builds[0].offsets, &builds[1].offsets,
			heading(paths[0], builds[0].file, same),
			heading(paths[1], builds[1].file, same)))
		printf("%s and %s are equal in all %zu fields\n", paths[0],
		       paths[1], lb_n_fields);
	return 0;
}

static void print_build(const struct options *options, struct lb_build *build)
{
	char name[NAME_MAX_LEN];

	if (options->source)
		snprintf(build->source[LB_BUILD_GIVEN],
			 sizeof(build->source[0]), "%s", options->source);
	name_build(build, options->name, name);
	if (options->json)
		print_json(build, name);
	else
		print_c(build, name);
}

/* @error: why its debug info could not be read */
static int run_scan(const struct options *options, const char *path,
		    const struct lb_build_error *error)
{
	struct lb_build_error scan_error;
	struct lb_build build;
	struct lb_scan scan;
	const char *entry;
	size_t n_wrong;
	int err = lb_build_scan(path, &build, &scan, &scan_error);

	if (err && err != -EINVAL) /* no LuaJIT: what was asked for first */
		return say_error(err == -EOPNOTSUPP ? &scan_error : error);
	if (options->mode == CHECK)
		return check_scan(&scan, path);
	if (err)
		return say_error(&scan_error);
	print_build(options, &build);
	if (!build.n_unknown)
		return 0;
	fprintf(stderr,
		"lj-offsets: %s: no debug info, and %zu of %zu fields are not "
		"known: %s\nhint: %s\n",
		path, build.n_unknown, lb_n_fields,
		nearest_entry(&scan.offsets, &entry, &n_wrong)
			? "entries with its marks differ"
			: "no entry has its marks",
		no_debug_info_hint);
	return 1;
}

static int run(const struct options *options, char *const *operands)
{
	struct lb_build_error error;
	struct lb_build build;
	int err;

	if (options->mode == DIFF)
		return diff(operands);
	err = options->mode == TABLE
		      ? lb_build_read_table(options->table, operands[0], &build,
					    &error)
		      : lb_build_read(operands[0], options->debug_path, &build,
				      &error);
	if (err && error.no_debug_info && !options->debug_path)
		return run_scan(options, operands[0], &error);
	if (err)
		return say_error(&error);
	if (options->mode == CHECK)
		return check(&build, operands[0]);
	print_build(options, &build);
	return 0;
}

static int end_output(int status)
{
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "lj-offsets: cannot write: %s\n",
			strerror(errno));
		return 1;
	}
	return status;
}

int main(int argc, char **argv)
{
	enum { OPT_DIFF = 256 };
	static const struct option long_options[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'V' },
		{ "json", no_argument, NULL, 'j' },
		{ "debug-file", required_argument, NULL, 'd' },
		{ "name", required_argument, NULL, 'n' },
		{ "source", required_argument, NULL, 's' },
		{ "check", no_argument, NULL, 'c' },
		{ "diff", no_argument, NULL, OPT_DIFF },
		{ "table", required_argument, NULL, 't' },
		{ 0 },
	};
	struct options options = { .mode = PRINT };
	int n_modes = 0, c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":hVjd:n:s:ct:", long_options,
				NULL)) != -1) {
		switch (c) {
		case 'h':
			fputs(usage_text, stdout);
			return end_output(0);
		case 'V':
			printf("lj-offsets %s\n", LB_VERSION);
			return end_output(0);
		case 'j':
			options.json = true;
			break;
		case 'd':
			options.debug_path = optarg;
			break;
		case 'n':
			options.name = optarg;
			break;
		case 's':
			options.source = optarg;
			break;
		case 'c':
			options.mode = CHECK;
			n_modes++;
			break;
		case OPT_DIFF:
			options.mode = DIFF;
			n_modes++;
			break;
		case 't':
			options.mode = TABLE;
			options.table = optarg;
			n_modes++;
			break;
		case ':':
			return usage_error("%s needs a value",
					   argv[optind - 1]);
		default:
			return usage_error("no such option: %s",
					   argv[optind - 1]);
		}
	}
	if (n_modes > 1)
		return usage_error("--check, --diff and --table exclude each "
				   "other");
	if ((options.json || options.name || options.source) &&
	    (options.mode == CHECK || options.mode == DIFF))
		return usage_error("--json, --name and --source are for "
				   "printing an entry");
	if (options.debug_path &&
	    (options.mode == DIFF || options.mode == TABLE))
		return usage_error("--debug-file belongs to one FILE");
	int n = argc - optind, want = options.mode == DIFF ? 2 : 1;

	if (n != want)
		return usage_error("%s", options.mode == DIFF
						 ? "--diff takes two "
						   "files"
					 : options.mode == TABLE
						 ? "--table takes one column"
					 : n ? "one FILE at a time"
					     : "FILE is missing");
	return end_output(run(&options, argv + optind));
}
