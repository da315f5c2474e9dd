/*
 * `berth doctor`: named checks, each with what it found and, when it is bad, what to do.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/api.h"
#include "cli/cli.h"

enum verdict { GOOD, WORTH_KNOWING, BAD };
static const char *const VERDICTS[] = { "ok", "note", "bad" };

struct exam {
	struct cli *cli;
	struct api *api; /* NULL: no server */
	json_t *health;  /* NULL: no server */
	json_t *findings;
	bool sick;
};

static void found(struct exam *e, const char *name, enum verdict verdict, const char *fix,
		  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

static void found(struct exam *e, const char *name, enum verdict verdict, const char *fix,
		  const char *fmt, ...)
{
	_cleanup_buf_ struct buf text = { 0 };
	json_t *finding = json_object();
	va_list ap;

	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	json_put_str(finding, "check", name);
	json_put_str(finding, "verdict", VERDICTS[verdict]);
	json_put_str(finding, "message", buf_str(&text));
	json_put_str(finding, "fix", verdict == GOOD ? NULL : fix);
	json_array_append_new(e->findings, finding);
	e->sick |= verdict == BAD;
}

static void check_data_directory(struct exam *e)
{
	const char *path = e->cli->data_path;
	struct stat st;

	if (stat(path, &st) < 0) {
		if (errno == ENOENT)
			found(e, "data directory", GOOD, NULL, "%s is made on first use", path);
		else
			found(e, "data directory", BAD,
			      "choose another with --data, or fix the modes of its parents",
			      "%s: %s", path, strerror(errno));
		return;
	}
	if (!S_ISDIR(st.st_mode) || access(path, R_OK | W_OK | X_OK) < 0)
		found(e, "data directory", BAD, "choose another with --data",
		      "%s cannot be written", path);
	else if (st.st_mode & 077)
		found(e, "data directory", BAD,
		      "chmod 700 it: the API's socket and all output are inside",
		      "%s is open to others (mode %o)", path, st.st_mode & 07777);
	else
		found(e, "data directory", GOOD, NULL, "%s", path);
}

static void check_disk(struct exam *e)
{
	_cleanup_close_ int fd = open(e->cli->data_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int64_t bytes = dir_free_bytes(fd >= 0 ? fd : AT_FDCWD);

	if (bytes < 0)
		return;
	found(e, "disk",
	      bytes < (64LL << 20)  ? BAD
	      : bytes < (1LL << 30) ? WORTH_KNOWING
				    : GOOD,
	      "make room, or `berth prune` finished history", "%lld MiB free",
	      (long long)(bytes >> 20));
}

static void check_server(struct exam *e)
{
	_cleanup_error_ struct error err = { 0 };
	const char *version;

	if (api_connect(e->cli, false, &e->api, &err) < 0) {
		found(e, "server", WORTH_KNOWING,
		      "`berth run` starts one in the background, `berth serve` in the foreground",
		      "%s", err.message);
		return;
	}
	if (api_call(e->api, "GET", "/api/health", NULL, &e->health, &err) < 0) {
		found(e, "server", BAD, "look at its log", "%s", err.message);
		return;
	}
	version = json_str(e->health, "version");
	if (!version)
		found(e, "server", BAD, "run as the server's user or as root",
		      "it does not trust this user");
	else if (!streq(version, BERTH_VERSION))
		found(e, "server", WORTH_KNOWING, "restart the server",
		      "it runs version %s, this is %s", version, BERTH_VERSION);
	else
		found(e, "server", GOOD, NULL, "version %s answers", version);
}

static void check_database(struct exam *e)
{
	json_t *database = json_object_at(e->health, "database");

	if (!database)
		return;
	if (json_bool(database, "ok", false))
		found(e, "database", GOOD, NULL, "%s (%s)", json_str(database, "engine"),
		      json_str(database, "library"));
	else
		found(e, "database", BAD,
		      "see the server's log; a copy is in backups/ of the data directory",
		      "%s does not answer", json_str(database, "engine"));
}

static void check_clock(struct exam *e)
{
	int64_t drift = json_int(e->health, "clockDriftMs", 0);

	if (!e->health)
		return;
	if (drift > -5000 && drift < 5000)
		found(e, "clock", GOOD, NULL, "agrees with the server's");
	else
		found(e, "clock", WORTH_KNOWING,
		      "restart the server when convenient: it keeps its own time "
		      "until then",
		      "the wall clock jumped by %lld s since the server started",
		      (long long)(drift / 1000));
}

static void check_audit(struct exam *e)
{
	_cleanup_json_ json_t *answer = NULL;
	const json_t *items;

	if (!e->api || !json_str(e->health, "version") ||
	    api_call(e->api, "GET", "/api/audit", NULL, &answer, NULL) < 0)
		return;
	items = json_is_array(answer) ? answer : json_object_get(answer, "items");
	if (json_array_size(items) == 0)
		found(e, "audit", GOOD, NULL, "nothing unexplained");
	else
		found(e, "audit", WORTH_KNOWING,
		      "`berth audit` lists them; the sweep retries cleanup by itself",
		      "%zu objects are not explained by a live place", json_array_size(items));
}

static void check_part(struct exam *e, const json_t *health, const char *name, const char *fix)
{
	json_t *part = json_object_at(health, name);
	const char *program = json_str(part, "program");

	if (!part)
		return;
	if (json_bool(part, "ok", false))
		found(e, name, GOOD, NULL, "%s", program);
	else
		found(e, name, BAD, fix, "%s: %s", program, json_str(part, "error"));
}

/* What callers with a token may have of this host, and whether the keeper goes by it. */
static void check_allowed(struct exam *e, const json_t *health)
{
	json_t *allow = json_object_at(health, "allow"), *keeper = json_object_at(health, "keeper");
	json_t *former = json_array_at(keeper, "startedWith"), *value;
	_cleanup_buf_ struct buf given = { 0 };
	const char *name;

	json_object_foreach (allow, name, value) {
		_cleanup_free_ char *text = json_text(value);

		if (json_is_true(value) || json_array_size(value) > 0)
			buf_printf(&given, "%s%s%s%s", given.len ? ", " : "", name,
				   json_is_true(value) ? "" : " ", json_is_true(value) ? "" : text);
	}
	if (former) {
		_cleanup_free_ char *text = json_text(former);

		found(e, "allowed to tokens", WORTH_KNOWING,
		      "release its leases (`berth top` lists them): it ends with its last place, "
		      "and the next keeper follows the server's settings",
		      "the server has: %s; the keeper with pid %lld is of an earlier release and "
		      "refuses roots and mounts that are not below %s",
		      given.len ? buf_str(&given) : "nothing",
		      (long long)json_int(keeper, "pid", 0), text);
		return;
	}
	if (allow)
		found(e, "allowed to tokens", GOOD, NULL,
		      "%s; the keeper follows the server's settings",
		      given.len ? buf_str(&given) : "nothing of this host");
}

static void check_keeping(struct exam *e)
{
	_cleanup_json_ json_t *health = NULL;

	if (!e->api || !json_str(e->health, "version") ||
	    api_call(e->api, "GET", "/api/keeper", NULL, &health, NULL) < 0)
		return;
	check_part(e, health, "keeper",
		   "install berth-keeper beside berth, or in ../libexec/berth");
	check_part(e, health, "relay", "install berth-relay beside berth-keeper");
	check_allowed(e, health);
}

static void check_descriptors(struct exam *e)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	found(e, "open files", limit.rlim_max < 4096 ? WORTH_KNOWING : GOOD,
	      "raise the hard limit (LimitNOFILE= in the service file)", "limit %llu, at most %llu",
	      (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
}

static void check_kernel(struct exam *e)
{
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (pidfd >= 0) {
		close(pidfd);
		found(e, "pidfd", GOOD, NULL, "processes can be named without races");
	} else {
		found(e, "pidfd", BAD, "Linux 5.3 or newer is needed", "%s", strerror(errno));
	}
	if (access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0 ||
	    access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0)
		found(e, "cgroup v2", GOOD, NULL, "mounted");
	else
		found(e, "cgroup v2", WORTH_KNOWING, "mount a cgroup2 tree", "not mounted");
	if (access("/proc/self/ns/user", F_OK) == 0)
		found(e, "user namespaces", GOOD, NULL, "the kernel has them");
	else
		found(e, "user namespaces", WORTH_KNOWING, "sandboxes will need them",
		      "not available");
}

/* What people meet where user namespaces are not for everybody. */
static void check_user_namespaces(struct exam *e)
{
	static const struct {
		const char *path, *bad, *fix;
	} settings[] = {
		{ "/proc/sys/kernel/unprivileged_userns_clone", "0",
		  "sysctl kernel.unprivileged_userns_clone=1, or run the server as root" },
		{ "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
		  "give berth-keeper an AppArmor profile with `userns,`, or sysctl "
		  "kernel.apparmor_restrict_unprivileged_userns=0, or run the server as root" },
		{ "/proc/sys/user/max_user_namespaces", "0",
		  "sysctl user.max_user_namespaces=15000" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		_cleanup_buf_ struct buf text = { 0 };

		if (file_read(AT_FDCWD, settings[i].path, &text, 64, NULL) < 0)
			continue;
		text.data[strcspn(text.data, "\n")] = 0;
		if (streq(text.data, settings[i].bad))
			found(e, "userns setting", geteuid() == 0 ? WORTH_KNOWING : BAD,
			      settings[i].fix, "%s is %s", settings[i].path, settings[i].bad);
	}
}

static void tell_evidence(struct exam *e, const json_t *details)
{
	const json_t *evidence = json_array_at(details, "evidence");
	const json_t *boundary = json_object_at(details, "boundary");
	const json_t *missing = json_array_at(boundary, "missing");
	json_t *item;
	size_t i;

	json_array_foreach (json_array_at(boundary, "walls"), i, item)
		found(e, "wall", GOOD, NULL, "%s", json_string_value(item));
	json_array_foreach (missing, i, item)
		found(e, "no wall", WORTH_KNOWING, NULL, "%s", json_string_value(item));
	json_array_foreach (evidence, i, item)
		found(e, "attempt", json_bool(item, "denied", false) ? GOOD : BAD,
		      "do not trust this place: keep the output and report it", "%s: %s",
		      json_str(item, "attempt"),
		      json_bool(item, "denied", false) ? "denied" : "allowed");
}

static void check_sandbox(struct exam *e)
{
	_cleanup_json_ json_t *probe = NULL;
	_cleanup_error_ struct error err = { 0 };

	check_user_namespaces(e);
	if (!e->api && api_connect(e->cli, true, &e->api, &err) < 0) {
		found(e, "sandbox", BAD, "start a server", "%s", err.message);
		return;
	}
	if (api_call(e->api, "POST", "/api/sandbox/test", NULL, &probe, &err) < 0) {
		found(e, "sandbox", BAD, "see the server's log", "%s", err.message);
		return;
	}
	found(e, "sandbox", json_bool(probe, "ok", false) ? GOOD : BAD,
	      "see the settings above; `berth run --env Local` runs without one", "%s",
	      json_str(probe, "summary"));
	tell_evidence(e, json_object_at(probe, "details"));
	if (geteuid() != 0)
		found(e, "sandbox", WORTH_KNOWING, "run the server as root for the other walls",
		      "ordinary user: relay and commands share one user id, there are no limits, "
		      "and processes are found by their parents");
}

static const struct flag FLAGS[] = {
	{ "sandbox", 0, NULL, "build a native place, try forbidden things in it, list its walls",
	  false },
	{ 0 },
};

static void (*const CHECKS[])(struct exam *) = {
	check_data_directory, check_disk,    check_server,      check_database, check_clock,
	check_audit,          check_keeping, check_descriptors, check_kernel,
};

static int doctor(struct cli *cli, const struct args *args)
{
	_cleanup_json_ json_t *findings = json_array();
	struct exam e = { .cli = cli, .findings = findings };
	json_t *finding;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(CHECKS); i++)
		CHECKS[i](&e);
	if (args_has(args, "sandbox"))
		check_sandbox(&e);
	api_close(e.api);
	json_decref(e.health);
	if (cli->json) {
		print_json(findings);
		return e.sick ? 1 : 0;
	}
	json_array_foreach (findings, i, finding) {
		printf("%-5s %-16s ", json_str(finding, "verdict"), json_str(finding, "check"));
		print_cell(stdout, json_str(finding, "message"));
		if (json_str(finding, "fix"))
			printf("\n%23s-> %s", "", json_str(finding, "fix"));
		putchar('\n');
	}
	return e.sick ? 1 : 0;
}

VERB(DOCTOR,
     630) = { .name = "doctor",
	      .arguments = "",
	      .run = doctor,
	      .flags = FLAGS,
	      .summary = "check this machine and the server; print a fix for each problem" };
