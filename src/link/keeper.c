#include "link/keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
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
#include "link/link.h"
#include "wire/place.h"

#define START_WAIT_MS 10000
#define LOOK_AGAIN_MS 5
#define KEEPER_ATTEMPTS 3
#define LOG_NAME "keeper.log"
#define LOG_MAX ((off_t)1 << 20)
#define PLACES_NAME "places"
#define CMDLINE_MAX ((size_t)1 << 20)

struct keeper {
	struct channel_loop *loop;
	int dirfd;
	char *dir, *program, *relay;
	int64_t open_files;
	pthread_mutex_t lock; /* everything below; held while connecting, which is bounded */
	struct link *link;
	pid_t child; /* the keeper we started, until it was reaped; 0: none */
	int child_fd;
	pid_t pid;
	uint32_t version;
	char program_version[65];
};

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

static int connect_locked(struct keeper *k, int64_t deadline, struct error *err)
{
	_cleanup_handshake_ struct handshake g = { 0 };
	_cleanup_close_ int fd = -1;
	struct link_options options = { .name = "keeper", .ping_ms = WIRE_PING_MS };

	if (handshake_connect(k->dirfd, KEEPER_SOCKET_NAME, false, &fd, &k->pid, err) < 0)
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

/* The caller unrefs. */
static int link_get(struct keeper *k, bool may_start, int64_t deadline, struct link **out,
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

/* Asks, and asks a new keeper when the old one died over the question. All verbs may be repeated.
 */
static int ask(struct keeper *k, enum wire_type type, const void *msg, enum wire_type last,
	       link_answer_fn *each, void *arg, int64_t deadline, struct error *err)
{
	for (int attempt = 0;; attempt++) {
		_cleanup_link_ struct link *link = NULL;

		if (link_get(k, true, deadline, &link, err) < 0)
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

static int take_place(void *arg, const struct wire_message *m, struct error *err)
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
	return take_place(&list->items[list->count++], m, err);
}

static bool keeper_can(struct link *link, uint64_t feature)
{
	uint64_t features;

	return link_features(link, &features, NULL) == 0 && (features & feature);
}

/* The first connection of a relay: its end goes along with the question, with the hello in it. */
static int connect_ahead(const struct buf *hello, int *ours, int *theirs, struct error *err)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return error_errno(err, errno, "making a connection");
	*ours = pair[0];
	*theirs = pair[1];
	return fd_write_all(*ours, hello->data, hello->len, err);
}

static struct stream *ask_for_place(struct link *link, const struct wire_place_make *make,
				    int handed, struct error *err)
{
	struct wire_place_make handing = *make;
	struct stream *stream;

	if (handed < 0)
		return link_open(link, WIRE_PLACE_MAKE, make, 0, err);
	handing.handed = 1;
	stream = link_open_handing(link, WIRE_PLACE_MAKE, &handing, handed, make, err);
	wipe(handing.key, sizeof(handing.key));
	return stream;
}

/* 1: the keeper has gone, before it was asked or over the question. */
static int make_once(struct link *link, const struct wire_place_make *make, int handed,
		     int64_t deadline, struct relay_place *out, struct error *err)
{
	struct stream *stream = NULL;
	int rc = SAY_GUARDED("keeper.make",
			     (stream = ask_for_place(link, make, handed, err)) ? 0 : -1, err);

	/* Also when the answer is of no use: the place is there then, or never will be. */
	if (stream && stream_await(stream, WIRE_PLACE_STATE, take_place, out, deadline,
				   rc == 0 ? err : NULL) < 0)
		rc = -1;
	stream_close(stream);
	return rc < 0 && !link_is_up(link) ? 1 : rc;
}

/* The flag that an earlier release's keeper names is one of that release. */
static void explain_bounds(struct link *link, struct error *err)
{
	if (keeper_can(link, WIRE_KEEPER_BOUNDS) || !err || !strstr(err->message, "--allow-path"))
		return;
	error_set(
		err, ERR_FORBIDDEN,
		"the keeper of an earlier release still runs, and mounts only what the list it was "
		"started with allows, until its last place has ended; `berth doctor` shows that "
		"list");
}

int keeper_make(struct keeper *k, const struct wire_place_make *make, const struct buf *hello,
		int64_t deadline, struct relay_place *out, int *fd, struct error *err)
{
	for (int attempt = 1;; attempt++) {
		_cleanup_link_ struct link *link = NULL;
		_cleanup_close_ int ours = -1, theirs = -1;
		int rc;

		*fd = -1;
		error_clear(err);
		if (link_get(k, true, deadline, &link, err) < 0)
			return error_wrap(err, "making the place's relay");
		if (hello && keeper_can(link, WIRE_KEEPER_HANDS) &&
		    connect_ahead(hello, &ours, &theirs, err) < 0)
			return -1;
		rc = make_once(link, make, theirs, deadline, out, err);
		if (rc == 0) {
			if (out->handed)
				*fd = steal_fd(&ours);
			return 0;
		}
		/* A keeper that idled away or was killed is replaced by the next attempt. */
		if (rc < 0 || attempt == KEEPER_ATTEMPTS || boottime_ms() >= deadline) {
			explain_bounds(link, err);
			return error_wrap(err, "making the place's relay");
		}
	}
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
	if (SAY_GUARDED("keeper.destroy",
			ask(k, WIRE_PLACE_DESTROY, &m, WIRE_DONE, NULL, NULL, deadline, &why),
			&why) == 0 ||
	    why.code == ERR_NOT_FOUND)
		return 0;
	error_move(err, &why);
	return error_wrap(err, "ending the place's relay");
}

int keeper_end_processes(struct keeper *k, const char *place_id, int64_t deadline,
			 struct error *err)
{
	struct wire_place_destroy m = { .place_id = place_id, .processes_only = 1 };
	_cleanup_error_ struct error why = { 0 };

	if (ask(k, WIRE_PLACE_DESTROY, &m, WIRE_DONE, NULL, NULL, deadline, &why) == 0 ||
	    why.code == ERR_NOT_FOUND)
		return 0;
	error_move(err, &why);
	return error_wrap(err, "ending the place's processes");
}

int keeper_store_remove(struct keeper *k, const char *store, int64_t deadline, struct error *err)
{
	struct wire_store_remove m = { .store = store };
	_cleanup_free_ char *path = xasprintf(STORES_NAME "/%s", store);

	if (!path_is_segment(store) || faccessat(k->dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return SAY_GUARDED("keeper.store-remove",
			   ask(k, WIRE_STORE_REMOVE, &m, WIRE_DONE, NULL, NULL, deadline, err),
			   err);
}

int keeper_list(struct keeper *k, int64_t deadline, struct relay_place_list *out, struct error *err)
{
	_cleanup_link_ struct link *link = NULL;
	_cleanup_error_ struct error why = { 0 };

	*out = (struct relay_place_list){ 0 };
	if (link_get(k, false, deadline, &link, &why) < 0 && !may_know_places(k, NULL))
		return 0;
	if (ask(k, WIRE_PLACE_LIST, &(struct wire_place_list){}, WIRE_DONE, add_place, out,
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
	bool running = link_get(k, false, deadline, &link, &err) == 0;
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
