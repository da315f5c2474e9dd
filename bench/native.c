#include "native.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define ATTACHES 7
#define PAUSE_US 50000

void native_company(struct client *c, char company_id[40])
{
	json_t *company = client_json(c, "POST", "/api/companies", "{\"name\":\"bench\"}", 201);

	snprintf(company_id, 40, "%s", json_str(company, "id"));
	json_decref(company);
}

bool native_environment(struct client *c, const char *company_id, const char *name,
			const char *config, char environment_id[40])
{
	_cleanup_free_ char *path = xasprintf("/api/companies/%s/environments", company_id);
	_cleanup_free_ char *body =
		xasprintf("{\"name\":\"%s\",\"driver\":\"sandbox\",\"config\":%s}", name, config);
	const char *answer = NULL;
	int status = client_call(c, "POST", path, body, &answer);
	json_t *environment = status == 201 ? json_loads(answer, 0, NULL) : NULL;

	if (!environment) {
		printf("%s: refused: %s\n", name, answer ? answer : "");
		return false;
	}
	snprintf(environment_id, 40, "%s", json_str(environment, "id"));
	json_decref(environment);
	return true;
}

void native_acquire(struct client *c, const char *environment_id, char lease_id[40])
{
	char path[128];
	json_t *lease;

	snprintf(path, sizeof(path), "/api/environments/%s/leases", environment_id);
	lease = client_json(c, "POST", path, "{}", 201);
	snprintf(lease_id, 40, "%s", json_str(lease, "id"));
	json_decref(lease);
}

void native_exec(struct client *c, const char *lease_id, const char *command)
{
	char path[128], body[512];
	json_t *answer;

	snprintf(path, sizeof(path), "/api/environment-leases/%s/exec?stream=0", lease_id);
	snprintf(body, sizeof(body), "{\"command\":%s}", command);
	answer = client_json(c, "POST", path, body, 200);
	if (json_int(answer, "exitCode", -1) != 0)
		bench_fail("%s did not exit with 0", command);
	json_decref(answer);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double attach_once(const char *procs)
{
	pid_t pid = fork();
	double begin, seconds;
	char text[16];
	int fd, len;

	if (pid == 0) {
		pause();
		_exit(0);
	}
	usleep(PAUSE_US);
	len = snprintf(text, sizeof(text), "%d", (int)pid);
	fd = open(procs, O_WRONLY | O_CLOEXEC);
	begin = bench_now();
	if (fd < 0 || write(fd, text, (size_t)len) != len)
		begin = -1;
	seconds = bench_now() - begin;
	close(fd);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return begin < 0 ? -1 : seconds;
}

void native_print_attach_cost(void)
{
	char dir[128], procs[160];
	double seconds[ATTACHES];
	bool works = true;

	snprintf(dir, sizeof(dir), "/sys/fs/cgroup/pids/berth-bench-%d", (int)getpid());
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", dir);
	if (mkdir(dir, 0755) < 0) {
		printf("no v1 cgroups that we could make here: attaching costs nothing\n");
		return;
	}
	for (size_t i = 0; i < ATTACHES && works; i++) {
		seconds[i] = attach_once(procs);
		works = seconds[i] >= 0;
	}
	rmdir(dir);
	if (!works)
		return;
	qsort(seconds, ATTACHES, sizeof(seconds[0]), by_value);
	printf("attaching to a v1 cgroup after %d ms: %.2f ms at least, %.2f ms in the middle\n",
	       PAUSE_US / 1000, seconds[0] * 1e3, seconds[ATTACHES / 2] * 1e3);
}
