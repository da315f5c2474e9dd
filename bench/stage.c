/*
 * Bringing a directory into a native place, against what copies or looks at the same files without
 * a place:
 *
 *     stage-large      one file of 200 MB, against cp
 *     stage-copy       1,000 files of 10 KB, against cp -a
 *     stage-overlay    the same as mode overlay has it, against cp -a: what must not be seen is
 *                      found, the tree is looked through and noted
 *     stage-overlay-run  what a run takes until its command starts, less the same of a run without
 *                      files, against cp -a: with the mount, the masks in the place, and the
 *                      records of the run. In whole milliseconds
 *     stage-unchanged  100,000 files that are there already, against find -printf of size and time
 *     stage-one        the same after one of them changed
 *
 * --files N makes the last two quicker to prepare, --only large, small, many or memory runs a part;
 * memory prints what server, relay and its child take more than idle while --files files are staged
 * into a fresh place. What must be made fresh for a round (a place, a directory to copy to) is made
 * before its clock starts.
 */
#include <glob.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"
#include "base/text.h"
#include "native.h"
#include "trees.h"
#include "workspace/overlay.h"
#include "workspace/workspace.h"

#define SMALL_FILES 1000
#define SMALL_SIZE 10240
#define LARGE_SIZE ((size_t)200 << 20)
#define MANY_FILES 100000
#define MANY_SIZE 100

struct state {
	struct client client;
	char company[40];
	char environment_id[40];
	char lease[40];
	struct trees trees;
	struct workspace_engine engine;
	int changed;
};

static void stage_into(struct state *s)
{
	char path[128], body[256];

	snprintf(path, sizeof(path), "/api/environment-leases/%s/stage", s->lease);
	snprintf(body, sizeof(body), "{\"path\":\"%s\",\"mode\":\"copy\",\"discard\":true}",
		 s->trees.tree);
	json_decref(client_json(&s->client, "POST", path, body, 200));
}

static double fresh_place(struct bench *b, void *arg)
{
	struct state *s = arg;
	double begin, seconds;

	(void)b;
	native_acquire(&s->client, s->environment_id, s->lease);
	native_exec(&s->client, s->lease, "[\"true\"]");
	/*
	 * The peer writes into memory that rm has just freed. On a virtual machine that gives free
	 * memory back to its host any other costs several times more, so we get such memory, too.
	 */
	trees_copy(&s->trees);
	trees_command((char *[]){ "rm", "-rf", s->trees.target, NULL });
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
	return trees_copy(&s->trees);
}

static double note(struct bench *b, void *arg)
{
	struct state *s = arg;
	struct place_ref place = { .place_id = "bench" };
	struct workspace_act act = { .place = &place, .place_root = "/workspace", .cancel_fd = -1 };
	struct workspace_state run = { 0 };
	struct workspace_request wish = {
		.path = s->trees.tree, .mode = MODE_OVERLAY, .mounts = true, .takes_relay = true
	};
	_cleanup_free_ char *masks = NULL;
	struct error err = { 0 };
	char id[ID_SIZE];
	double begin = bench_now(), seconds;

	(void)b;
	id_new(id);
	wish.run_id = id;
	if (workspace_prepare(&s->engine, &wish, &run, &err) < 0 ||
	    overlay_prepare(&s->engine.results, &run, -1, &masks, &err) < 0 ||
	    workspace_stage(&s->engine, &run, &act, &err) < 0)
		bench_fail("%s", err.message);
	seconds = bench_now() - begin;
	workspace_state_clear(&run);
	return seconds;
}

/* Seconds from the beginning of a run to that of its command. */
static double until_command(struct state *s, const char *workspace)
{
	_cleanup_free_ char *path = xasprintf("/api/companies/%s/runs", s->company);
	_cleanup_free_ char *body = xasprintf("{\"command\":[\"true\"],\"environmentId\":\"%s\"%s}",
					      s->environment_id, workspace);
	_cleanup_json_ json_t *run = client_json(&s->client, "POST", path, body, 201);
	_cleanup_free_ char *one = xasprintf("/api/runs/%s", json_str(run, "id"));
	const json_t *times = NULL;

	while (json_int(times, "totalMs", -1) < 0) {
		usleep(5000);
		json_decref(run);
		run = client_json(&s->client, "GET", one, NULL, 200);
		times = json_object_at(run, "timings");
	}
	if (!streq(json_str(run, "status"), "succeeded"))
		bench_fail("a run did not succeed");
	return (double)(json_int(times, "totalMs", 0) - json_int(times, "executedMs", 0) -
			json_int(times, "collectedMs", 0)) /
	       1e3;
}

static double overlay_run(struct bench *b, void *arg)
{
	struct state *s = arg;
	_cleanup_free_ char *workspace =
		xasprintf(",\"workspace\":{\"path\":\"%s\",\"mode\":\"overlay\"}", s->trees.tree);
	double with = until_command(s, workspace);

	(void)b;
	return with - until_command(s, "");
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

	snprintf(path, sizeof(path), "%s/dir0003/file000333.txt", s->trees.tree);
	snprintf(text, sizeof(text), "changed %d times\n", ++s->changed);
	trees_write(path, text, strlen(text));
	return again(b, s);
}

static double look(struct bench *b, void *arg)
{
	struct state *s = arg;

	(void)b;
	return trees_command(
		(char *[]){ "find", s->trees.tree, "-type", "f", "-printf", "%s %T@\n", NULL });
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

	trees_new(&s->trees, "large");
	path = xasprintf("%s/file", s->trees.tree);
	random_bytes(data, LARGE_SIZE);
	trees_write(path, data, LARGE_SIZE);
	bench_print("stage-large", bench_compare(b, fresh_place, copy_away, s));
	trees_command((char *[]){ "rm", "-rf", s->trees.tree, s->trees.target, NULL });
}

static void compare_small(struct bench *b, struct state *s)
{
	struct error err = { 0 };
	char data[128];

	trees_new(&s->trees, "small");
	trees_fill(&s->trees, SMALL_FILES, SMALL_SIZE);
	bench_print("stage-copy", bench_compare(b, fresh_place, copy_away, s));
	snprintf(data, sizeof(data), "%s/engine", s->trees.dir);
	if (mkdir(data, 0700) < 0 || workspace_engine_open(&s->engine, data, NULL, &err) < 0)
		bench_fail("%s", err.message);
	bench_print("stage-overlay", bench_compare(b, note, copy_away, s));
	bench_print("stage-overlay-run", bench_compare(b, overlay_run, copy_away, s));
	workspace_engine_close(&s->engine);
}

static void compare_many(struct bench *b, struct state *s, size_t files)
{
	trees_new(&s->trees, "many");
	trees_fill(&s->trees, files, MANY_SIZE);
	native_acquire(&s->client, s->environment_id, s->lease);
	stage_into(s);
	stage_into(s);
	bench_print("stage-one", bench_compare(b, again_with_one, look, s));
	bench_print("stage-unchanged", bench_compare(b, again, look, s));
	client_release(&s->client, s->lease);
}

/* Memory of the server, and of each relay with its children. */
static long all_memory_kb(const struct bench *b)
{
	_cleanup_free_ char *pattern = xasprintf("%s/keeper/places/*/relay", b->dir);
	long total = bench_memory_kb(b->server);
	glob_t found;

	if (glob(pattern, 0, NULL, &found) != 0)
		return total;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		FILE *f = fopen(found.gl_pathv[i], "re");
		int pid;

		if (f && fscanf(f, "%d", &pid) == 1)
			total += bench_memory_kb(pid);
		if (f)
			fclose(f);
	}
	globfree(&found);
	return total;
}

struct watcher {
	const struct bench *bench;
	atomic_bool ending;
	long peak_kb;
};

static void *watch_memory(void *arg)
{
	struct watcher *w = arg;

	while (!atomic_load(&w->ending)) {
		w->peak_kb = MAX_OF(w->peak_kb, all_memory_kb(w->bench));
		usleep(10000);
	}
	return NULL;
}

static void measure_memory(struct bench *b, struct state *s, size_t files)
{
	struct watcher watcher = { .bench = b };
	pthread_t thread;
	long idle;

	trees_new(&s->trees, "memory");
	trees_fill(&s->trees, files, MANY_SIZE);
	native_acquire(&s->client, s->environment_id, s->lease);
	native_exec(&s->client, s->lease, "[\"true\"]");
	idle = all_memory_kb(b);
	if (pthread_create(&thread, NULL, watch_memory, &watcher) != 0)
		bench_fail("no thread");
	stage_into(s);
	stage_into(s);
	atomic_store(&watcher.ending, true);
	pthread_join(thread, NULL);
	printf("staging %zu files, then again: %.1f MB at most, %.1f MB idle\n", files,
	       (double)watcher.peak_kb / 1024, (double)idle / 1024);
	client_release(&s->client, s->lease);
}

int main(int argc, char **argv)
{
	static struct state s;
	size_t files = take_files(&argc, argv);
	const char *only = take_option(&argc, argv, "--only");
	struct bench b;

	bench_begin(&b, argc, argv);
	trees_begin(&s.trees);
	native_print_attach_cost();
	bench_server_start(&b);
	client_open(&s.client, b.socket);
	native_company(&s.client, s.company);
	if (!native_environment(&s.client, s.company, "native", "{\"provider\":\"native\"}",
				s.environment_id))
		bench_fail("no native places");
	if (!only || streq(only, "large"))
		compare_large(&b, &s);
	if (!only || streq(only, "small"))
		compare_small(&b, &s);
	if (!only || streq(only, "many"))
		compare_many(&b, &s, files);
	if (!only || streq(only, "memory"))
		measure_memory(&b, &s, files);
	client_close(&s.client);
	trees_end(&s.trees);
	bench_end(&b);
	return 0;
}
