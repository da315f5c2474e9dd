/*
 * Bringing work home from a native place, against cp -a of the same files, which neither compares
 * nor syncs nor can be interrupted:
 *
 *     collect    1,000 files of 10 KB, all of them changed in the place
 *
 * The place, the staging and the changes are made before a round's clock starts.
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
#include "base/json.h"
#include "bench.h"
#include "native.h"

#define FILES 1000
#define SIZE 10240
#define PER_DIRECTORY 100

extern char **environ;

struct state {
	struct client client;
	char environment_id[40];
	char lease[40];
	char dir[64], tree[96], target[96];
};

static double run_command(char *const argv[])
{
	double begin = bench_now();
	pid_t pid;
	int status;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0 ||
	    waitpid(pid, &status, 0) < 0 || status != 0)
		bench_fail("%s failed", argv[0]);
	return bench_now() - begin;
}

static void make_tree(struct state *s)
{
	char path[160], data[SIZE];

	run_command((char *[]){ "rm", "-rf", s->tree, NULL });
	if (mkdir(s->tree, 0755) < 0)
		bench_fail("cannot make %s", s->tree);
	for (int i = 0; i < FILES; i++) {
		int fd;

		snprintf(path, sizeof(path), "%s/dir%d", s->tree, i / PER_DIRECTORY);
		mkdir(path, 0755);
		snprintf(path, sizeof(path), "%s/dir%d/file%d", s->tree, i / PER_DIRECTORY, i);
		random_bytes(data, sizeof(data));
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0 || fd_write_all(fd, data, sizeof(data), NULL) < 0)
			bench_fail("cannot write %s", path);
		close(fd);
	}
}

static json_t *ask(struct state *s, const char *verb, const char *body)
{
	char path[128];

	snprintf(path, sizeof(path), "/api/environment-leases/%s/%s", s->lease, verb);
	return client_json(&s->client, "POST", path, body, 200);
}

static double collect(struct bench *b, void *arg)
{
	struct state *s = arg;
	double begin, seconds;
	char body[256];
	json_t *report;

	(void)b;
	make_tree(s);
	native_acquire(&s->client, s->environment_id, s->lease);
	snprintf(body, sizeof(body), "{\"path\":\"%s\",\"mode\":\"copy\"}", s->tree);
	json_decref(ask(s, "stage", body));
	native_exec(&s->client, s->lease,
		    "[\"sh\",\"-c\",\"for f in /workspace/dir*/file*; do echo x >> $f; done\"]");
	begin = bench_now();
	report = ask(s, "collect", "{}");
	seconds = bench_now() - begin;
	if (json_int(json_object_at(report, "counts"), "modified", 0) != FILES)
		bench_fail("not all changes came home");
	json_decref(report);
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

int main(int argc, char **argv)
{
	static struct state s;
	struct bench b;
	char company[40];

	bench_begin(&b, argc, argv);
	snprintf(s.dir, sizeof(s.dir), "/tmp/berth-trees-XXXXXX");
	if (!mkdtemp(s.dir))
		bench_fail("no temporary directory");
	snprintf(s.tree, sizeof(s.tree), "%s/tree", s.dir);
	snprintf(s.target, sizeof(s.target), "%s/copy", s.dir);
	bench_server_start(&b);
	client_open(&s.client, b.socket);
	native_company(&s.client, company);
	if (!native_environment(&s.client, company, "native", "{\"provider\":\"native\"}",
				s.environment_id))
		bench_fail("no native places");
	bench_print("collect", bench_compare(&b, collect, copy_away, &s));
	client_close(&s.client);
	run_command((char *[]){ "rm", "-rf", s.dir, NULL });
	bench_end(&b);
	return 0;
}
