/*
 * Bringing a directory into a native place, against what copies or looks at the same files without
 * a place:
 *
 *     stage-large      one file of 200 MB, against cp
 *     stage-copy       1,000 files of 10 KB, against cp -a
 *     stage-overlay    the same, only noted, as mode overlay does it, against cp -a
 *     stage-unchanged  100,000 files that are there already, against find -printf of size and time
 *     stage-one        the same after one of them changed
 *
 * --files N makes the last two quicker to prepare, --only large, small or many runs a part. What
 * must be made fresh for a round (a place, a directory to copy to) is made before its clock starts.
 */
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/id.h"
#include "base/text.h"
#include "bench.h"
#include "native.h"
#include "workspace/workspace.h"

#define SMALL_FILES 1000
#define SMALL_SIZE 10240
#define LARGE_SIZE ((size_t)200 << 20)
#define MANY_FILES 100000
#define PER_DIRECTORY 100

extern char **environ;

struct state {
	struct client client;
	char environment_id[40];
	char lease[40];
	char dir[64];     /* of trees: not in the server's data, which no workspace may be */
	char tree[128];   /* that is brought */
	char target[128]; /* of the peer */
	struct workspace_engine engine;
	int changed;
};

static double run_command(char *const argv[])
{
	posix_spawn_file_actions_t actions;
	double begin = bench_now();
	pid_t pid;
	int status;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
	if (posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ) != 0 ||
	    waitpid(pid, &status, 0) < 0 || status != 0)
		bench_fail("%s failed", argv[0]);
	posix_spawn_file_actions_destroy(&actions);
	return bench_now() - begin;
}

static void write_file(const char *path, const void *data, size_t len)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || fd_write_all(fd, data, len, NULL) < 0)
		bench_fail("cannot write %s", path);
	close(fd);
}

static void make_tree(struct state *s, const char *name)
{
	snprintf(s->tree, sizeof(s->tree), "%s/%s", s->dir, name);
	snprintf(s->target, sizeof(s->target), "%s/%s-copy", s->dir, name);
	if (mkdir(s->tree, 0755) < 0)
		bench_fail("cannot make %s", s->tree);
}

static void fill(struct state *s, size_t count, size_t size)
{
	_cleanup_free_ char *data = xmalloc(size);
	char path[256];

	for (size_t i = 0; i < count; i++) {
		if (i % PER_DIRECTORY == 0) {
			snprintf(path, sizeof(path), "%s/dir%04zu", s->tree, i / PER_DIRECTORY);
			if (mkdir(path, 0755) < 0)
				bench_fail("cannot make %s", path);
		}
		random_bytes(data, size);
		snprintf(path, sizeof(path), "%s/dir%04zu/file%06zu.txt", s->tree,
			 i / PER_DIRECTORY, i);
		write_file(path, data, size);
	}
}

static void stage_into(struct state *s)
{
	char path[128], body[256];

	snprintf(path, sizeof(path), "/api/environment-leases/%s/stage", s->lease);
	snprintf(body, sizeof(body), "{\"path\":\"%s\",\"mode\":\"copy\",\"discard\":true}",
		 s->tree);
	json_decref(client_json(&s->client, "POST", path, body, 200));
}

static double fresh_place(struct bench *b, void *arg)
{
	struct state *s = arg;
	double begin, seconds;

	(void)b;
	native_acquire(&s->client, s->environment_id, s->lease);
	native_exec(&s->client, s->lease, "[\"true\"]");
	begin = bench_now();
	stage_into(s);
	seconds = bench_now() - begin;
	client_release(&s->client, s->lease);
	return seconds;
}

static double copy_away(struct bench *b, void *arg)
{
	struct state *s = arg;

	(void)b;
	run_command((char *[]){ "rm", "-rf", s->target, NULL });
	return run_command((char *[]){ "cp", "-a", s->tree, s->target, NULL });
}

static double note_only(struct bench *b, void *arg)
{
	struct state *s = arg;
	struct place_ref place = { .place_id = "bench" };
	struct workspace_act act = { .place = &place, .place_root = "/workspace", .cancel_fd = -1 };
	struct workspace_state run = { .mode = MODE_OVERLAY, .path = xstrdup(s->tree) };
	struct error err = { 0 };
	double begin = bench_now(), seconds;

	(void)b;
	id_new(run.run_id);
	if (workspace_stage(&s->engine, &run, &act, &err) < 0)
		bench_fail("%s", err.message);
	seconds = bench_now() - begin;
	workspace_state_clear(&run);
	return seconds;
}

static double again(struct bench *b, void *arg)
{
	double begin = bench_now();

	(void)b;
	stage_into(arg);
	return bench_now() - begin;
}

static double again_with_one(struct bench *b, void *arg)
{
	struct state *s = arg;
	char path[256], text[32];

	snprintf(path, sizeof(path), "%s/dir0003/file000333.txt", s->tree);
	snprintf(text, sizeof(text), "changed %d times\n", ++s->changed);
	write_file(path, text, strlen(text));
	return again(b, s);
}

static double look(struct bench *b, void *arg)
{
	struct state *s = arg;

	(void)b;
	return run_command(
		(char *[]){ "find", s->tree, "-type", "f", "-printf", "%s %T@\n", NULL });
}

/* The value of an option of our own, which is taken out; NULL: it was not given. */
static const char *take_option(int *argc, char **argv, const char *name)
{
	for (int i = 1; i + 1 < *argc; i++) {
		const char *value = argv[i + 1];

		if (!streq(argv[i], name))
			continue;
		memmove(argv + i, argv + i + 2, (size_t)(*argc - i - 1) * sizeof(*argv));
		*argc -= 2;
		return value;
	}
	return NULL;
}

static size_t take_files(int *argc, char **argv)
{
	const char *text = take_option(argc, argv, "--files");
	int64_t n = MANY_FILES;

	if (text && !parse_i64(text, 1000, 190000, &n))
		bench_fail("--files takes 1000 to 190000");
	return (size_t)n;
}

static void compare_large(struct bench *b, struct state *s)
{
	_cleanup_free_ char *data = xmalloc(LARGE_SIZE), *path = NULL;

	make_tree(s, "large");
	path = xasprintf("%s/file", s->tree);
	random_bytes(data, LARGE_SIZE);
	write_file(path, data, LARGE_SIZE);
	bench_print("stage-large", bench_compare(b, fresh_place, copy_away, s));
	run_command((char *[]){ "rm", "-rf", s->tree, s->target, NULL });
}

static void compare_small(struct bench *b, struct state *s)
{
	struct error err = { 0 };
	char data[128];

	make_tree(s, "small");
	fill(s, SMALL_FILES, SMALL_SIZE);
	bench_print("stage-copy", bench_compare(b, fresh_place, copy_away, s));
	snprintf(data, sizeof(data), "%s/engine", s->dir);
	if (mkdir(data, 0700) < 0 || workspace_engine_open(&s->engine, data, NULL, &err) < 0)
		bench_fail("%s", err.message);
	bench_print("stage-overlay", bench_compare(b, note_only, copy_away, s));
	workspace_engine_close(&s->engine);
}

static void compare_many(struct bench *b, struct state *s, size_t files)
{
	make_tree(s, "many");
	fill(s, files, 100);
	native_acquire(&s->client, s->environment_id, s->lease);
	stage_into(s);
	stage_into(s);
	bench_print("stage-one", bench_compare(b, again_with_one, look, s));
	bench_print("stage-unchanged", bench_compare(b, again, look, s));
	client_release(&s->client, s->lease);
}

int main(int argc, char **argv)
{
	static struct state s;
	size_t files = take_files(&argc, argv);
	const char *only = take_option(&argc, argv, "--only");
	struct bench b;
	char company[40];

	bench_begin(&b, argc, argv);
	snprintf(s.dir, sizeof(s.dir), "/tmp/berth-trees-XXXXXX");
	if (!mkdtemp(s.dir))
		bench_fail("no temporary directory");
	native_print_attach_cost();
	bench_server_start(&b);
	client_open(&s.client, b.socket);
	native_company(&s.client, company);
	if (!native_environment(&s.client, company, "native", "{\"provider\":\"native\"}",
				s.environment_id))
		bench_fail("no native places");
	if (!only || streq(only, "large"))
		compare_large(&b, &s);
	if (!only || streq(only, "small"))
		compare_small(&b, &s);
	if (!only || streq(only, "many"))
		compare_many(&b, &s, files);
	client_close(&s.client);
	run_command((char *[]){ "rm", "-rf", s.dir, NULL });
	bench_end(&b);
	return 0;
}
