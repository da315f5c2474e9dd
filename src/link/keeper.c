#include "link/keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/sha256.h"
#include "base/spawn.h"
#include "base/text.h"
#include "link/fault_points.h"
#include "link/handshake.h"
#include "link/keeper_internal.h"
#include "wire/place.h"

#define START_WAIT_MS 10000
#define LOOK_AGAIN_MS 5
#define LOG_NAME "keeper.log"
#define LOG_MAX ((off_t)1 << 20)
#define CMDLINE_MAX ((size_t)1 << 20)

static char *beside_self(const char *below, const char *name)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (n <= 0)
		return xstrdup(name);
	self[n] = 0;
	slash = strrchr(self, '/');
	return xasprintf("%.*s%s/%s", slash ? (int)(slash - self) : 0, self, below, name);
}

static char *find_program(void)
{
	_cleanup_free_ char *beside = beside_self("", "berth-keeper");
	_cleanup_free_ char *libexec = beside_self("/../libexec/berth", "berth-keeper");

	return access(beside, X_OK) < 0 && access(libexec, X_OK) == 0 ? steal(libexec)
								      : steal(beside);
}

struct keeper *keeper_new(const struct keeper_options *options)
{
	struct keeper *k = xcalloc(1, sizeof(*k));

	k->dialer = KEEPER_DIALER;
	k->loop = options->loop;
	k->dirfd = options->dirfd;
	k->dir = xstrdup(options->dir);
	k->open_files = options->open_files;
	k->program = options->program ? xstrdup(options->program) : find_program();
	k->relay = xstrdup(options->relay);
	k->child_fd = -1;
	pthread_mutex_init(&k->lock, NULL);
	return k;
}

static void reap(struct keeper *k)
{
	if (k->child <= 0 || waitpid(k->child, NULL, WNOHANG) == 0)
		return;
	k->child = 0;
	close_fdp(&k->child_fd);
}

void keeper_free(struct keeper *k)
{
	if (!k)
		return;
	if (k->link) {
		link_close(k->link);
		link_unref(k->link);
	}
	reap(k);
	close_fdp(&k->child_fd);
	pthread_mutex_destroy(&k->lock);
	free(k->dir);
	free(k->program);
	free(k->relay);
	free(k);
}

char *keeper_relay_program(struct keeper *k)
{
	const char *slash = strrchr(k->program, '/');

	if (k->relay)
		return xstrdup(k->relay);
	return xasprintf("%.*s/berth-relay", slash ? (int)(slash - k->program) : 0, k->program);
}

static int open_log(int dirfd)
{
	int fd = openat(dirfd, LOG_NAME, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW,
			0600);

	if (fd >= 0 && lseek(fd, 0, SEEK_END) > LOG_MAX && ftruncate(fd, 0) < 0)
		close_fdp(&fd);
	return fd;
}

static char **keeper_arguments(const struct keeper *k, const char *relay)
{
	char **argv = NULL;

	strv_push(&argv, xstrdup(k->program));
	strv_push(&argv, xstrdup("--dir"));
	strv_push(&argv, xstrdup(k->dir));
	strv_push(&argv, xstrdup("--relay"));
	strv_push(&argv, xstrdup(relay));
	return argv;
}

/*
 * The server has raised its own soft limit; commands get what it was started with. Relays are made
 * only after this, since nobody has asked the keeper for one yet.
 */
static void limit_files(const struct keeper *k)
{
	struct rlimit files;

	if (k->open_files <= 0 || prlimit(k->child, RLIMIT_NOFILE, NULL, &files) < 0)
		return;
	files.rlim_cur = MIN_OF((rlim_t)k->open_files, files.rlim_max);
	if (prlimit(k->child, RLIMIT_NOFILE, &files, NULL) < 0)
		log_warn("the keeper's limit of open files: %s", strerror(errno));
}

/*
 * Ours only until we are gone: it leads its own session and lives on. Its environment is empty; the
 * faults armed for this process mean nothing to it.
 */
static int start_locked(struct keeper *k, struct error *err)
{
	_cleanup_free_ char *relay = keeper_relay_program(k);
	_cleanup_strv_ char **argv = keeper_arguments(k, relay);
	char *envp[] = { NULL };
	_cleanup_close_ int log_fd = open_log(k->dirfd);
	struct spawn_spec spec = {
		.argv = argv,
		.envp = envp,
		.cwd = "/",
		.stdin_fd = -1,
		.stdout_fd = log_fd,
		.stderr_fd = log_fd,
		.new_session = true,
	};

	if (log_fd < 0)
		return error_errno(err, errno, "opening the keeper's log");
	if (spawn(&spec, &k->child, &k->child_fd, err) < 0) {
		k->child = 0;
		error_wrap(err, "starting the keeper %s", k->program);
		return error_recode(err, ERR_UNAVAILABLE);
	}
	limit_files(k);
	log_info("keeper started, pid %d", (int)k->child);
	return 0;
}

int keeper_connect(struct keeper *k, const char *path, bool behind_walls, int *fd, pid_t *pid,
		   struct error *err)
{
	return handshake_connect(k->dirfd, path, behind_walls, fd, pid, err);
}

static int connect_locked(struct keeper *k, int64_t deadline, struct error *err)
{
	_cleanup_handshake_ struct handshake g = { 0 };
	_cleanup_close_ int fd = -1;
	struct link_options options = { .name = "keeper", .ping_ms = WIRE_PING_MS };

	if (keeper_connect(k, KEEPER_SOCKET_NAME, false, &fd, &k->pid, err) < 0)
		return -1;
	if (handshake_keeper(fd, MIN_OF(deadline, boottime_ms() + WIRE_HELLO_MS), &g, err) < 0)
		return error_wrap(err, "greeting the keeper");
	k->version = g.version;
	options.features = g.features;
	snprintf(k->program_version, sizeof(k->program_version), "%s", g.program_version);
	return link_new(k->loop, steal_fd(&fd), &options, g.early.data, g.early.len, &k->link, err);
}

/* Or somebody who is about to go: its socket was still there, and nobody answered. */
static bool nobody_listens(const struct error *err)
{
	return err->errnum == ENOENT || err->errnum == ECONNREFUSED || err->code == ERR_UNAVAILABLE;
}

/* Until it listens. One that ends first lost the race for the lock, or cannot run at all. */
static int start_and_connect_locked(struct keeper *k, int64_t deadline, struct error *err)
{
	int64_t until = MIN_OF(deadline, boottime_ms() + START_WAIT_MS);

	for (;;) {
		struct pollfd p = { .events = POLLIN };

		reap(k);
		if (k->child == 0 && start_locked(k, err) < 0)
			return -1;
		p.fd = k->child_fd;
		poll(&p, 1, LOOK_AGAIN_MS);
		if (connect_locked(k, until, err) == 0)
			return 0;
		if (!nobody_listens(err))
			return -1;
		if (boottime_ms() >= until)
			return error_set(err, ERR_UNAVAILABLE,
					 "the keeper does not start; see " LOG_NAME " in %s",
					 k->dir);
	}
}

int keeper_link(struct keeper *k, bool may_start, int64_t deadline, struct link **out,
		struct error *err)
{
	int rc = 0;

	pthread_mutex_lock(&k->lock);
	if (k->link && !link_is_up(k->link)) {
		link_unref(k->link);
		k->link = NULL;
	}
	if (!k->link) {
		struct error why = { 0 };

		rc = connect_locked(k, deadline, &why);
		if (rc < 0 && may_start && nobody_listens(&why)) {
			error_clear(&why);
			rc = start_and_connect_locked(k, deadline, &why);
		}
		error_move(err, &why);
	}
	if (rc == 0)
		*out = link_ref(k->link);
	pthread_mutex_unlock(&k->lock);
	return rc;
}

int keeper_ask(struct keeper *k, enum wire_type type, const void *msg, enum wire_type last,
	       link_answer_fn *each, void *arg, int64_t deadline, struct error *err)
{
	for (int attempt = 0;; attempt++) {
		_cleanup_link_ struct link *link = NULL;

		if (keeper_link(k, true, deadline, &link, err) < 0)
			return -1;
		if (link_call(link, type, msg, last, each, arg, deadline, err) == 0)
			return 0;
		if (link_is_up(link) || attempt == KEEPER_ATTEMPTS - 1 || boottime_ms() >= deadline)
			return -1;
	}
}

void relay_place_clear(struct relay_place *p)
{
	free(p->label);
	free(p->root);
	free(p->cgroup);
	free(p->ended);
	free(p->upper);
	*p = (struct relay_place){ 0 };
}

void relay_place_list_clear(struct relay_place_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		relay_place_clear(&list->items[i]);
	free(list->items);
	*list = (struct relay_place_list){ 0 };
}

int keeper_take_place(void *arg, const struct wire_message *m, struct error *err)
{
	struct relay_place *out = arg;

	(void)err;
	if (m->type != WIRE_PLACE_STATE)
		return 0;
	relay_place_clear(out);
	out->state = m->place_state.state;
	out->pid = (pid_t)m->place_state.pid;
	out->root = xstrdup(m->place_state.root);
	out->cgroup = xstrdup(m->place_state.cgroup);
	out->ended = xstrdup(m->place_state.ended);
	out->label = xstrdup(m->place_state.label);
	out->upper = xstrdup(m->place_state.upper);
	out->walls = m->place_state.walls;
	out->pooled = m->place_state.pool > 0;
	out->handed = m->place_state.handed;
	snprintf(out->id, sizeof(out->id), "%s", m->place_state.place_id);
	return 0;
}

static int add_place(void *arg, const struct wire_message *m, struct error *err)
{
	struct relay_place_list *list = arg;

	if (m->type != WIRE_PLACE_STATE)
		return 0;
	list->items = xreallocarray(list->items, list->count + 1, sizeof(*list->items));
	list->items[list->count] = (struct relay_place){ 0 };
	return keeper_take_place(&list->items[list->count++], m, err);
}

bool keeper_can(struct link *link, uint64_t feature)
{
	uint64_t features;

	return link_features(link, &features, NULL) == 0 && (features & feature);
}

static bool has_entries(struct keeper *k, const char *name)
{
	_cleanup_close_ int fd =
		openat(k->dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	struct dirent *entry;
	bool any = false;
	DIR *dir;

	if (fd < 0)
		return errno != ENOENT;
	dir = fdopendir(fd);
	if (!dir)
		return true;
	fd = -1;
	while (!any && (entry = readdir(dir)))
		any = entry->d_name[0] != '.';
	closedir(dir);
	return any;
}

/*
 * With no keeper and nothing on disk there is nothing to ask about. What is in trash/ no place is
 * left of, but a keeper has to remove it.
 */
static bool may_know_places(struct keeper *k, const char *place_id)
{
	_cleanup_free_ char *path = place_id ? xasprintf(PLACES_NAME "/%s", place_id) : NULL;

	if (place_id)
		return faccessat(k->dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT;
	return has_entries(k, PLACES_NAME) || has_entries(k, TRASH_NAME);
}

int keeper_destroy(struct keeper *k, const char *place_id, int64_t deadline, struct error *err)
{
	struct wire_place_destroy m = { .place_id = place_id };
	_cleanup_error_ struct error why = { 0 };

	/* The place's directory is there from before it is made until nothing of it runs. */
	if (!path_is_segment(place_id) || !may_know_places(k, place_id))
		return 0;
	if (SAY_GUARDED(
		    "keeper.destroy",
		    keeper_ask(k, WIRE_PLACE_DESTROY, &m, WIRE_DONE, NULL, NULL, deadline, &why),
		    &why) == 0 ||
	    why.code == ERR_NOT_FOUND)
		return 0;
	error_move(err, &why);
	return error_wrap(err, "ending the place's relay");
}

int keeper_store_remove(struct keeper *k, const char *store, int64_t deadline, struct error *err)
{
	struct wire_store_remove m = { .store = store };
	_cleanup_free_ char *path = xasprintf(STORES_NAME "/%s", store);

	if (!path_is_segment(store) || faccessat(k->dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return SAY_GUARDED(
		"keeper.store-remove",
		keeper_ask(k, WIRE_STORE_REMOVE, &m, WIRE_DONE, NULL, NULL, deadline, err), err);
}

int keeper_list(struct keeper *k, int64_t deadline, struct relay_place_list *out, struct error *err)
{
	_cleanup_link_ struct link *link = NULL;
	_cleanup_error_ struct error why = { 0 };

	*out = (struct relay_place_list){ 0 };
	if (keeper_link(k, false, deadline, &link, &why) < 0 && !may_know_places(k, NULL))
		return 0;
	if (keeper_ask(k, WIRE_PLACE_LIST, &(struct wire_place_list){}, WIRE_DONE, add_place, out,
		       deadline, err) < 0) {
		relay_place_list_clear(out);
		return error_wrap(err, "listing places");
	}
	return 0;
}

int keeper_find(struct keeper *k, const char *place_id, int64_t deadline, struct relay_place *out,
		struct error *err)
{
	_cleanup_(relay_place_list_clear) struct relay_place_list list = { 0 };

	if (!may_know_places(k, place_id))
		return error_set(err, ERR_NOT_FOUND, "there is no such place on this host");
	if (keeper_list(k, deadline, &list, err) < 0)
		return -1;
	for (size_t i = 0; i < list.count; i++) {
		if (!streq(list.items[i].id, place_id))
			continue;
		*out = list.items[i];
		list.items[i] = (struct relay_place){ 0 };
		return 0;
	}
	return error_set(err, ERR_NOT_FOUND, "there is no such place on this host");
}

static int take_status(void *arg, const struct wire_message *m, struct error *err)
{
	json_t *health = arg;

	(void)err;
	if (m->type != WIRE_KEEPER_STATE)
		return 0;
	json_put_int(health, "places", (int64_t)m->keeper_state.alive + m->keeper_state.dead);
	json_put_int(health, "dead", m->keeper_state.dead);
	json_put_int(health, "uptimeMs",
		     (int64_t)MIN_OF(m->keeper_state.uptime_ms, (uint64_t)INT64_MAX));
	json_put_str(health, "cgroup", m->keeper_state.cgroup);
	return 0;
}

/* What a keeper that names no bounds was told at its start: it stands in its arguments. */
static json_t *started_with(pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/cmdline", (int)pid);
	_cleanup_buf_ struct buf text = { 0 };
	json_t *list = json_array();
	const char *word = NULL, *before = "";

	if (file_read(AT_FDCWD, path, &text, CMDLINE_MAX, NULL) < 0)
		return list;
	for (word = buf_str(&text); word < buf_str(&text) + text.len; word += strlen(word) + 1) {
		if (streq(before, "--allow-path"))
			json_array_append_new(list, json_string(word));
		before = word;
	}
	return list;
}

json_t *keeper_health(struct keeper *k, int64_t deadline)
{
	_cleanup_link_ struct link *link = NULL;
	_cleanup_error_ struct error err = { 0 };
	json_t *health = json_object();
	bool running = keeper_link(k, false, deadline, &link, &err) == 0;
	bool ok = running;

	json_put_str(health, "program", k->program);
	json_put_bool(health, "running", running);
	if (running) {
		json_put_int(health, "pid", k->pid);
		json_put_str(health, "version", k->program_version);
		json_put_int(health, "protocol", k->version);
		if (!keeper_can(link, WIRE_KEEPER_BOUNDS))
			json_put_new(health, "startedWith", started_with(k->pid));
		ok = link_call(link, WIRE_KEEPER_STATUS, &(struct wire_keeper_status){},
			       WIRE_KEEPER_STATE, take_status, health, deadline, &err) == 0;
	} else {
		/* One that idles away is started when it is needed. */
		json_put_int(health, "places", 0);
		ok = nobody_listens(&err) && access(k->program, X_OK) == 0;
		if (nobody_listens(&err) && !ok)
			error_errno(&err, errno, "%s", k->program);
	}
	json_put_bool(health, "ok", ok);
	if (!ok)
		json_put_str(health, "error", err.message);
	return health;
}

char *keeper_cgroup(const char *dir)
{
	static const char *const mounts[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
	uint8_t digest[SHA256_SIZE];
	char tag[9];

	sha256_once(dir, strlen(dir), digest);
	hex_encode(tag, digest, 4);
	for (size_t i = 0; i < ARRAY_SIZE(mounts); i++) {
		_cleanup_free_ char *path = xasprintf("%s/berth-%s", mounts[i], tag);

		if (access(path, F_OK) == 0)
			return steal(path);
	}
	return NULL;
}
