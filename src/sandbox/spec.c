/*
 * What the server wants, checked once more: the server may have been talked into something, and the
 * keeper is who has the power. A path is opened once and judged by where the descriptor really is,
 * so that no link can move between the judgement and the mount (CVE-2021-30465 and its kind).
 */
#include "sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "wire/frame.h"

#define SPEC_MAX 32768u
#define MEMORY_MIN (8ull << 20)
#define DISK_MIN (1ull << 20)
#define BPF_INSTRUCTION 8
#define USER_LETTERS "abcdefghijklmnopqrstuvwxyz0123456789_-"

void sandbox_spec_clear(struct sandbox_spec *spec)
{
	close_fdp(&spec->root_fd);
	for (size_t i = 0; i < spec->mount_count; i++) {
		close_fdp(&spec->mounts[i].source_fd);
		free(spec->mounts[i].target);
	}
	spec->mount_count = 0;
	free(steal(spec->store));
	workspace_spec_clear(&spec->workspace);
}

static bool is_beneath(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (strcmp(dir, "/") == 0)
		return true;
	return strncmp(path, dir, len) == 0 && (path[len] == 0 || path[len] == '/');
}

static int real_path(int fd, char out[PATH_BOUND + 1], struct error *err)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, out, PATH_BOUND);
	if (n <= 0 || out[0] != '/')
		return error_errno(err, n < 0 ? errno : ENOENT, "finding out what a path means");
	out[n] = 0;
	return 0;
}

int policy_guard(const struct sandbox_policy *policy, const struct wire_strv *closed,
		 const char *given, const char *real, struct error *err)
{
	char dir[PATH_BOUND + 1];

	/* Stops: a place that sees the keys and sockets of all the others. */
	if (policy->secret &&
	    (is_beneath(real, policy->secret) || is_beneath(policy->secret, real)))
		return error_set(err, ERR_FORBIDDEN, "%.200s would show the data directory", given);
	/*
	 * Stops: a place that sees the API's socket. What lies deeper than that does not show it,
	 * and the directory may be as large as somebody's home.
	 */
	for (uint32_t i = 0; i < closed->count; i++)
		if (realpath(closed->v[i], dir) && is_beneath(dir, real))
			return error_set(err, ERR_FORBIDDEN,
					 "%.200s would show the server's socket, which is in "
					 "%.200s; put it elsewhere (berth serve --socket)",
					 given, dir);
	return 0;
}

/* Stops: a place that sees the kernel's files, devices, or all services of the host. */
static int judge_ever(const char *given, const char *real, struct error *err)
{
	static const char *const never[] = { "/proc", "/sys", "/dev" };

	if (strcmp(real, "/") == 0)
		return error_set(err, ERR_FORBIDDEN, "%.200s is the whole host", given);
	if (strcmp(real, "/run") == 0)
		return error_set(err, ERR_FORBIDDEN,
				 "%.200s has the services of the host: mount what is needed of it",
				 given);
	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		if (is_beneath(real, never[i]))
			return error_set(err, ERR_FORBIDDEN, "no place can have %.200s", given);
	return 0;
}

static int judge(const char *given, const char *real, const char *within,
		 const struct sandbox_policy *policy, const struct wire_strv *closed,
		 struct error *err)
{
	char allowed[PATH_BOUND + 1];

	if (judge_ever(given, real, err) < 0 || policy_guard(policy, closed, given, real, err) < 0)
		return -1;
	if (within) {
		if (is_beneath(real, within))
			return 0;
		return error_set(err, ERR_FORBIDDEN,
				 "%.200s is really %.200s, which is not below %.200s", given, real,
				 within);
	}
	/* A server of the release before: by the list this keeper was started with. */
	for (char **dir = policy->allowed; dir && *dir; dir++)
		if (realpath(*dir, allowed) && is_beneath(real, allowed))
			return 0;
	return error_set(
		err, ERR_FORBIDDEN,
		"%.200s is not beneath a directory that was allowed (berth serve --allow-path)",
		given);
}

static int open_allowed(const char *path, const char *within, const struct sandbox_policy *policy,
			const struct wire_strv *closed, int *out, struct stat *st,
			struct error *err)
{
	_cleanup_close_ int fd = -1;
	char real[PATH_BOUND + 1];

	if (path[0] != '/' || !path_is_clean(path))
		return error_set(err, ERR_VALIDATION, "%.200s is not a clean absolute path", path);
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0 || fstat(fd, st) < 0)
		return error_errno(err, errno, "%.200s", path);
	if (real_path(fd, real, err) < 0 || judge(path, real, within, policy, closed, err) < 0)
		return -1;
	if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode))
		return error_set(err, ERR_VALIDATION, "%.200s is neither a directory nor a file",
				 path);
	*out = steal_fd(&fd);
	return 0;
}

/* Where the walls themselves are, nothing is mounted. */
static bool is_reserved(const char *target)
{
	static const char *const own[] = { "/proc", "/dev", "/sys", "/etc/passwd", "/etc/group" };

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (is_beneath(target, own[i]))
			return true;
	return strcmp(target, "/") == 0;
}

/* The n-th path of the sandbox; NULL: the server names no bounds. */
static const char *nth_within(const struct wire_sandbox *m, uint32_t n)
{
	return m->within.count > 0 ? m->within.v[n] : NULL;
}

static int check_within(const struct wire_sandbox *m, struct error *err)
{
	uint32_t paths = (m->root && m->root[0]) + m->mounts.count / 3;

	if (m->within.count != 0 && m->within.count != paths)
		return error_set(err, ERR_VALIDATION, "%u paths have %u bounds", paths,
				 m->within.count);
	for (uint32_t i = 0; i < m->within.count; i++)
		if (m->within.v[i][0] != '/' || !path_is_clean(m->within.v[i]))
			return error_set(err, ERR_VALIDATION, "%.200s is not a clean absolute path",
					 m->within.v[i]);
	return 0;
}

static int take_mounts(const struct wire_sandbox *wanted, const struct sandbox_policy *policy,
		       struct sandbox_spec *out, struct error *err)
{
	const struct wire_strv *list = &wanted->mounts;
	uint32_t first = wanted->root && wanted->root[0];

	if (list->count % 3 != 0 || list->count / 3 > SANDBOX_MOUNTS_MAX)
		return error_set(err, ERR_VALIDATION, "mounts come in threes, at most %d",
				 SANDBOX_MOUNTS_MAX);
	for (uint32_t i = 0; i < list->count; i += 3) {
		struct sandbox_mount *m = &out->mounts[out->mount_count];
		const char *mode = list->v[i], *target = list->v[i + 2];
		struct stat st;

		*m = (struct sandbox_mount){ .source_fd = -1 };
		if (strcmp(mode, "ro") != 0 && strcmp(mode, "rw") != 0)
			return error_set(err, ERR_VALIDATION, "a mount is ro or rw");
		if (target[0] != '/' || !path_is_clean(target) || is_reserved(target))
			return error_set(err, ERR_VALIDATION, "nothing can be mounted at %.200s",
					 target);
		if (open_allowed(list->v[i + 1], nth_within(wanted, first + i / 3), policy,
				 &wanted->closed, &m->source_fd, &st, err) < 0)
			return -1;
		m->writable = mode[1] == 'w';
		m->is_dir = S_ISDIR(st.st_mode);
		m->owner = st.st_uid;
		m->group = st.st_gid;
		m->target = xstrdup(target);
		out->mount_count++;
	}
	return 0;
}

static int take_user(const char *user, struct sandbox_spec *out, struct error *err)
{
	if (!user || !user[0])
		user = SANDBOX_USER;
	if (strspn(user, USER_LETTERS) != strlen(user) || user[0] < 'a')
		return error_set(err, ERR_VALIDATION, "%.40s is no name of a user", user);
	snprintf(out->user, sizeof(out->user), "%s", user);
	out->uid = strcmp(user, "root") == 0 ? 0 : SANDBOX_UID;
	if (out->uid == 0 && geteuid() != 0)
		return error_set(
			err, ERR_UNAVAILABLE,
			"user root needs a keeper that is root: an ordinary user has one user "
			"id to give");
	return 0;
}

static int take_limits(const struct wire_sandbox *m, struct sandbox_spec *out, struct error *err)
{
	if (m->memory_bytes && m->memory_bytes < MEMORY_MIN)
		return error_set(err, ERR_VALIDATION, "a memory limit is at least 8 MiB");
	if (m->disk_bytes && m->disk_bytes < DISK_MIN)
		return error_set(err, ERR_VALIDATION, "a disk limit is at least 1 MiB");
	if (m->disk_bytes && !m->tmpfs)
		return error_set(
			err, ERR_UNAVAILABLE,
			"there is no way to limit what is written to the host's disk; a disk "
			"limit needs writable tmpfs");
	out->memory_bytes = m->memory_bytes;
	out->disk_bytes = m->disk_bytes;
	out->pids = m->pids;
	out->cpu_percent = m->cpu_percent;
	out->open_files = m->open_files;
	out->soft_limits = m->soft_limits;
	return 0;
}

/* A server that knows no parts sends the whole, which is then installed by every exec. */
static int take_filter(const struct wire_sandbox *m, struct sandbox_spec *out, struct error *err)
{
	const struct wire_bytes *programs[] = { &m->seccomp, &m->seccomp_base, &m->seccomp_exec };

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++)
		if (programs[i]->len % BPF_INSTRUCTION != 0)
			return error_set(err, ERR_VALIDATION,
					 "the seccomp filter is no BPF program");
	if ((m->seccomp_base.len > 0) != (m->seccomp_exec.len > 0))
		return error_set(err, ERR_VALIDATION, "half of the seccomp filter is missing");
	out->seccomp_base = m->seccomp_base;
	out->seccomp_exec = m->seccomp_exec.len > 0 ? m->seccomp_exec : m->seccomp;
	return 0;
}

static int take(const struct wire_sandbox *m, const struct sandbox_policy *policy,
		struct sandbox_spec *out, struct error *err)
{
	struct stat st;

	out->tmpfs = m->tmpfs;
	out->host_network = m->host_network;
	out->sockets = m->sockets;
	out->require = m->require;
	/*
	 * Servers on loopback that ask the kernel whose a connection is would take the payload for
	 * the user himself, ours among them.
	 */
	if (m->host_network && geteuid() != 0)
		return error_set(
			err, ERR_UNAVAILABLE,
			"network host needs a keeper that is root: an ordinary user's sandbox "
			"would be that user to every server of this host");
	if (take_filter(m, out, err) < 0)
		return -1;
	if (m->store && m->store[0]) {
		if (!path_is_segment(m->store) || m->store[0] == '.')
			return error_set(err, ERR_VALIDATION, "this is no name of a store");
		if (m->tmpfs)
			return error_set(err, ERR_VALIDATION,
					 "what is written to tmpfs cannot be kept");
		out->store = xstrdup(m->store);
	}
	if (take_user(m->user, out, err) < 0 || take_limits(m, out, err) < 0)
		return -1;
	if (check_within(m, err) < 0)
		return -1;
	if (m->root && m->root[0]) {
		if (open_allowed(m->root, nth_within(m, 0), policy, &m->closed, &out->root_fd, &st,
				 err) < 0)
			return -1;
		if (!S_ISDIR(st.st_mode))
			return error_set(err, ERR_VALIDATION, "%.200s is no directory", m->root);
	}
	if (workspace_spec_read(m, policy, &out->workspace, err) < 0)
		return -1;
	return take_mounts(m, policy, out, err);
}

int sandbox_spec_read(const struct wire_bytes *bytes, const struct sandbox_policy *policy,
		      struct sandbox_spec *out, struct error *err)
{
	_cleanup_wire_message_ struct wire_message m = { 0 };
	struct frame frame;
	size_t used;
	int r;

	memset(out, 0, sizeof(*out));
	out->root_fd = out->workspace.source_fd = -1;
	r = frame_parse(bytes->data, bytes->len, SPEC_MAX, &frame, &used, err);
	if (r < 0)
		return -1;
	if (r == 0 || used != bytes->len || frame.type != WIRE_SANDBOX)
		return error_set(err, ERR_PROTOCOL, "the sandbox is not one SANDBOX frame");
	if (wire_decode(&frame, &m, err) < 0)
		return -1;
	if (take(&m.sandbox, policy, out, err) < 0) {
		sandbox_spec_clear(out);
		return -1;
	}
	return 0;
}
