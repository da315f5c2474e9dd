/*
 * The command line. A verb is defined with VERB at the foot of the file that runs it, which puts it
 * into help, completion and the manual page; there is no list. Verbs talk HTTP to a server and never
 * open the database.
 *
 * Results go to stdout, progress and errors to stderr; --json gives the API's own objects.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "base/json.h"

/* Exit codes, docker-like: the command's own code passes through verbatim. */
enum {
	EXIT_USAGE = 2,
	EXIT_ALREADY_RUNNING = 3, /* serve: another server holds the data directory */
	EXIT_TIMED_OUT = 124,
	EXIT_BERTH = 125, /* Berth's own failure, where the command's codes pass through */
	EXIT_INTERRUPTED = 130,
};

struct flag {
	const char *name;  /* without dashes; NULL ends the table */
	char letter;       /* 0: none */
	const char *value; /* what the value is called in the help; NULL: a switch */
	const char *summary;
	bool many; /* may be given more than once */
};

#define ARGS_MAX_FLAGS 256
struct args {
	const struct verb *verb;
	const struct flag *flag[ARGS_MAX_FLAGS]; /* as given, in order */
	const char *value[ARGS_MAX_FLAGS];
	size_t flags;
	char *const *positional; /* NULL-terminated */
	size_t positionals;
	char *const *command; /* what stood behind `--`; NULL when there was none */
};
const char *args_value(const struct args *args, const char *flag); /* the last one given, or NULL */
bool args_has(const struct args *args, const char *flag);
/* Value of the nth use of a flag that may repeat; NULL past the last. */
const char *args_nth(const struct args *args, const char *flag, size_t n);
/* A number or duration given to a flag; false (with a message on stderr) when it is none. */
bool args_int(const struct args *args, const char *flag, int64_t min, int64_t max, int64_t *out);
bool args_duration_ms(const struct args *args, const char *flag, int64_t *out);

struct cli {
	char *data_path;
	const char *url; /* NULL: the socket in the data directory */
	const char *company;
	const char *token_file, *ca_file; /* NULL: BERTH_TOKEN or none; the system's */
	bool insecure_http;               /* a token may go over plain http to another machine */
	bool json, quiet;
	char *program; /* how to start this program again */
};

struct verb {
	const char *name;      /* "env add": two words make a group */
	const char *arguments; /* "NAME [-- CMD...]" */
	const char *summary;
	const char *help;          /* more lines, or NULL */
	const struct flag *flags;  /* besides those every verb takes; NULL: none */
	const struct flag *former; /* flags there are no more; the summary says why. NULL: none */
	size_t min_args, max_args; /* positionals */
	bool takes_command;        /* wants `-- CMD...` (or the command as further positionals) */
	/* Flags that stand for the command; NULL: none does. */
	const char *const *instead;
	int usage_exit;                         /* 0: EXIT_USAGE */
	const char *(*usual)(const char *flag); /* value of a flag that is not given; may be NULL */
	int (*run)(struct cli *cli, const struct args *args); /* the program's exit code */
};

/*
 * Defines a verb and registers it in a linker section. Help, completion and manual page list verbs
 * by `order`; a new one takes a number between its neighbours, `grep -rn "^VERB(" src/cli`.
 *
 *     VERB(WHOAMI, 520) = { .name = "whoami", .summary = "...", .run = whoami };
 */
struct verb_entry {
	int order;
	const struct verb *verb;
};
#define VERB(ident, order)                                                                         \
	static const struct verb VERB_##ident;                                                     \
	static const struct verb_entry VERB_##ident##_entry = { (order), &VERB_##ident };          \
	static const struct verb_entry *const VERB_##ident##_ref                                   \
		__attribute__((used, section("berth_verbs"))) = &VERB_##ident##_entry;             \
	static const struct verb VERB_##ident
/* All of them by their order, NULL-terminated; the caller frees the array. */
const struct verb **verbs_in_order(void);
extern const struct flag GLOBAL_FLAGS[];
/* Whether the verb has a flag of its own under the name of this one of GLOBAL_FLAGS. */
bool flag_is_own(const struct verb *verb, const struct flag *flag);

int cli_main(int argc, char **argv);
/* Prints "berth: message" (and the code with --json) and returns the exit code. */
int cli_fail(const struct cli *cli, const struct error *err, int exit_code);
void print_usage(FILE *to, const struct verb *verb);
void print_help(FILE *to);

/* Pretty JSON on stdout. */
void print_json(const json_t *value);
/*
 * A table: `columns` is a NULL-terminated list of "HEADING=key" (dotted keys reach into objects);
 * NULL values show as "-".
 */
void print_table(const json_t *rows, const char *const *columns);
/* "KEY   value" lines of one object, keys as in print_table. */
void print_fields(const json_t *object, const char *const *columns);
/* Bytes from a place to a terminal: escape sequences that would act on it are kept from a tty table
 * cell. */
void print_cell(FILE *to, const char *text);

/* What -e gave, into the body's env. */
int put_variables(const struct args *args, json_t *body, struct error *err);
/* A JSON object given on the command line, or @FILE with one; new reference. */
json_t *config_argument(const char *text, struct error *err);
/* The terminal here into the body's tty. */
void put_terminal(json_t *body);

/* Turns words into struct args; reorders argv. ERR_BAD_REQUEST says what is wrong in a sentence. */
int args_parse(struct args *args, const struct verb *verb, int argc, char **argv,
	       struct error *err);
