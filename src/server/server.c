/*
 * The server's life:
 *
 *   data directory, lock -> database -> node -> places -> makers -> leases -> runs
 *   -> sockets (clients may connect and wait) -> recovery -> serving -> stop, in the other order
 */
#include "api/server.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include "api/answer.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/text.h"
#include "db/restore.h"
#include "exec/execs.h"
#include "live/feed.h"
#include "record/event.h"
#include "server/config_environments.h"
#include "server/data_dir.h"
#include "server/exec_survey.h"
#include "server/log_compressor.h"
#include "server/maintenance.h"

#define LOG_BYTES ((int64_t)2 << 30) /* of one run or exec */
#define IDLE_LOOK_MS 500
#define IDLE_EXIT_MS ((int64_t)60000)
#define BEAT_MS ((int64_t)10000)
#define RETENTION_MS ((int64_t)30 * 86400 * 1000)
#define HTTP_STOP_MS 5000
#define RUNS_STOP_MS 15000
#define DRAIN_MS ((int64_t)24 * 3600 * 1000)

#define FILES_MAX ((rlim_t)1 << 20)
#define FILES_KEPT 128  /* for everything but runs */
#define FILES_PER_RUN 6 /* log and index, connection, latches, threads' own */
#define RUNS_MAX 256

/* Returns the soft limit as it was; it is raised as far as that goes. */
static int64_t raise_open_files(void)
{
	struct rlimit files;
	int64_t before;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return 0;
	before = (int64_t)MIN_OF(files.rlim_cur, FILES_MAX);
	files.rlim_cur = MAX_OF(files.rlim_cur, MIN_OF(files.rlim_max, FILES_MAX));
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		log_warn("the limit of open files stays at %lld: %s", (long long)before,
			 strerror(errno));
	return before;
}

/* As many runs as are wanted and descriptors allow. */
static int bound_runs(int64_t wanted)
{
	struct rlimit files;
	int64_t most = INT_MAX;

	if (wanted <= 0)
		wanted = RUNS_MAX;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < FILES_MAX)
		most = ((int64_t)files.rlim_cur - FILES_KEPT) / FILES_PER_RUN;
	return (int)MAX_OF(MIN_OF(wanted, most), (int64_t)1);
}

/*
 * A core would hold what runs were given; a thread per connection would otherwise bring an arena
 * each, and large bodies would stay in the heap after they are gone.
 */
static void settle_process(void)
{
	struct rlimit core;
	sigset_t ours;

	if (getrlimit(RLIMIT_CORE, &core) == 0) {
		core.rlim_cur = 0;
		setrlimit(RLIMIT_CORE, &core);
	}
	mallopt(M_ARENA_MAX, 4);
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	mallopt(M_TRIM_THRESHOLD, 128 << 10);
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &ours, NULL);
}

static int open_data(struct server *server, struct error *err)
{
	const struct server_options *options = &server->options;

	server->data_path = xstrdup(options->data_path);
	server->socket_path = options->socket_path ? xstrdup(options->socket_path)
						   : path_join(options->data_path, "berth.sock");
	if (data_open(server->data_path, &server->data_dirfd, err) < 0)
		return -1;
	return data_lock(server->data_dirfd, server->data_path, &server->clock, &server->lock_fd,
			 err);
}

/* Nodes that share a database are given the same key, or know only their own runs' tokens. */
static int open_run_key(struct server *server, struct error *err)
{
	const char *path = server->options.run_key_path;

	return run_token_key_load(path ? AT_FDCWD : server->data_dirfd, path ? path : "jwt.key",
				  &server->run_key, err);
}

/* How a server that wants the same database is told of this one. */
static char *claimant_name(const char *node_id)
{
	char host[256] = "";

	gethostname(host, sizeof(host) - 1);
	return node_id[0] ? xasprintf("node %s on %s", node_id, host)
			  : xasprintf("a server on %s", host);
}

static int open_database(struct server *server, struct error *err)
{
	_cleanup_free_ char *path = path_join(server->data_path, "berth.db");
	_cleanup_free_ char *backups = path_join(server->data_path, "backups");
	struct db_options options = { .path = path };

	/* Under the lock of the data directory: nobody is still writing them. */
	db_backup_sweep(server->data_path, 0);
	db_backup_sweep(backups, 0);
	server->claimant = claimant_name("");
	if (server->options.database_url)
		options = (struct db_options){ .url = server->options.database_url,
					       .claimant = server->claimant };
	if (db_open(&server->db, &options, err) < 0 || open_run_key(server, err) < 0 ||
	    node_register(server->db, &server->clock, server->data_dirfd, &server->node, err) < 0)
		return -1;
	free(server->claimant);
	server->claimant = claimant_name(server->node.id);
	return db_claim(server->db, server->claimant, err);
}

/* A directory below the data directory, made if absent. */
static int open_dir(struct server *server, const char *name, int *fd, struct error *err)
{
	if (dir_make(server->data_dirfd, name, 0700, err) < 0)
		return -1;
	return dir_open(server->data_dirfd, name, fd, err);
}

/* As it is really called; a relative path is seen from here. */
static char *directory_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	_cleanup_free_ char *dir =
		slash ? xstrndup(path, (size_t)(slash - path) + 1) : xstrdup(".");
	char real[PATH_MAX];

	return realpath(dir, real) ? xstrdup(real) : NULL;
}

static int open_places(struct server *server, struct error *err)
{
	_cleanup_close_ int providers = -1, spool = -1, home = -1;
	_cleanup_free_ char *providers_path = path_join(server->data_path, "providers");
	_cleanup_free_ char *runtime_path = path_join(server->data_path, "keeper");
	struct places_options places_options = {
		.clock = &server->clock,
		.owner = server->node.id,
		.boot_epoch = server->node.boot_epoch,
		.runtime_path = runtime_path,
		.keeper_path = getenv("BERTH_KEEPER"),
		.relay_path = getenv("BERTH_RELAY"),
		.absence_ms = server->options.absence_ms,
		.open_files = server->open_files,
	};

	if (places_new(&places_options, &server->places, err) < 0 ||
	    open_dir(server, "providers", &providers, err) < 0 ||
	    open_dir(server, "spool", &spool, err) < 0 || open_dir(server, "home", &home, err) < 0)
		return -1;
	dir_sweep_temporary(spool);

	struct leases_options lease_options = {
		.db = server->db,
		.clock = &server->clock,
		.node = &server->node,
		.makers = &server->makers,
		.spool_dirfd = spool,
		.sweep_ms = server->options.sweep_ms,
		.reconcile_ms = server->options.reconcile_ms,
		.cleanup_base_ms = server->options.cleanup_base_ms,
		.max_per_company = server->options.quota.leases,
		.allow = &server->options.allow,
		.absence_ms = server->options.absence_ms,
	};

	server->home_path = path_join(server->data_path, "home");
	server->socket_dir = server->options.socket_path ? directory_of(server->socket_path) : NULL;
	server->maker_host = (struct maker_host){
		.places = server->places,
		.clock = &server->clock,
		.db = server->db,
		.home_path = server->home_path,
		.socket_dir = server->socket_dir,
		.allow_fake = server->options.allow_fake,
		.no_local = server->options.no_local,
	};
	if (maker_store_new(providers, providers_path, &server->maker_host.store, err) < 0)
		return -1;
	makers_init(&server->makers, &server->maker_host);
	server->sandbox = sandbox_config(server, err);
	server->default_place =
		(struct default_place){ server->options.default_environment, server->sandbox };
	return server->sandbox ? leases_new(&lease_options, &server->leases, err) : -1;
}

static int open_runs(struct server *server, const char *api_url, struct error *err)
{
	_cleanup_close_ int logs = -1, execs = -1;

	if (open_dir(server, "logs", &logs, err) < 0 ||
	    open_dir(server, "execs", &execs, err) < 0 ||
	    runlog_store_open(logs, LOG_BYTES, &server->run_logs, err) < 0)
		return -1;

	struct execs_options exec_options = {
		.makers = &server->makers,
		.places = server->places,
		.leases = server->leases,
		.clock = &server->clock,
		.dirfd = execs,
		.log_bytes = LOG_BYTES,
	};
	struct runs_options run_options = {
		.db = server->db,
		.clock = &server->clock,
		.node = &server->node,
		.leases = server->leases,
		.makers = &server->makers,
		.places = server->places,
		.logs = server->run_logs,
		.api_url = api_url,
		.home_path = server->home_path,
		.quota = server->options.quota,
		.max_parallel = server->max_runs,
		.token_key = &server->run_key,
		.default_environment = server->options.default_environment,
		.sandbox = server->sandbox,
		.engine = &server->engine,
		.allow = &server->options.allow,
	};

	struct feed_options feed_options = {
		.db = server->db,
		.clock = &server->clock,
		.logs = server->run_logs,
	};

	if (workspace_engine_open(&server->engine, server->data_path, &server->clock, err) < 0)
		return -1;
	server->has_engine = true;
	server->engine.max_fetch_entries = (uint64_t)server->options.max_collect_files;
	server->engine.max_fetch_bytes = (uint64_t)server->options.max_collect_mb << 20;
	if (execs_new(&exec_options, &server->execs, err) < 0 ||
	    feed_new(&feed_options, &server->feed, err) < 0)
		return -1;
	return runs_new(&run_options, &server->runs, err);
}

/* What an earlier server began is settled before anything new is taken on. */
static int recover(struct server *server, struct error *err)
{
	if (leases_recover(server->leases, err) < 0)
		return error_wrap(err, "recovering leases");
	if (runs_recover(server->runs, err) < 0)
		return error_wrap(err, "recovering runs");
	if (execs_recover(server->execs, err) < 0)
		return error_wrap(err, "recovering execs");
	survey_recorded(server);
	return leases_start(server->leases, err);
}

/* The tables as they are, but for a route that an option opens. */
static const struct route **route_tables(const struct server *server)
{
	const struct route **tables;
	size_t count = 0;

	while (route_table_at(count))
		count++;
	tables = xcalloc(count + 1, sizeof(*tables));
	for (size_t i = 0; i < count; i++) {
		tables[i] = route_table_at(i);
		if (server->options.metrics_public && tables[i] == METRICS_ROUTES)
			tables[i] = METRICS_PUBLIC_ROUTES;
	}
	return tables;
}

static int serve(struct server *server, int *tcp_fd, int *unix_fd, struct error *err)
{
	_cleanup_free_ const struct route **tables = route_tables(server);
	struct http_options options = {
		.tcp_fd = steal_fd(tcp_fd),
		.unix_fd = steal_fd(unix_fd),
		.tables = tables,
		.server = server,
		.clock = &server->clock,
		.access = { access_authenticate, access_authorize },
		.allowed_hosts = server->options.allowed_hosts,
		.tls_cert = server->options.listen ? server->options.tls_cert : NULL,
		.tls_key = server->options.tls_key,
	};

	if (http_start(&options, &server->http, err) < 0)
		return -1;
	if (runs_start(server->runs, err) < 0 ||
	    log_compressor_start(server->runs, server->run_logs, &server->clock,
				 server->options.pack_ms, &server->compressor, err) < 0)
		return -1;
	if (survey_start(server, err) < 0)
		return -1;
	return maintenance_start(server, err);
}

/* Beyond this machine a token is read by whoever listens on the way, unless there is TLS. */
static int bind_tcp(const struct server_options *options, int *fd, int *port, struct error *err)
{
	bool wide = options->tls_cert || options->insecure_http;

	if (options->insecure_http && !options->tls_cert)
		log_warn("--insecure-http: tokens and output can be read on their way");
	return http_bind(options->listen, wide, fd, port, err);
}

/* Where somebody on this machine reaches what was bound; free it. */
static char *listen_url(const struct server_options *options, int port)
{
	const char *scheme = options->tls_cert ? "https" : "http";
	const char *colon = strrchr(options->listen, ':');
	_cleanup_free_ char *host = xstrndup(options->listen, (size_t)(colon - options->listen));

	if (streq(host, "0.0.0.0") || streq(host, "localhost"))
		return xasprintf("%s://127.0.0.1:%d", scheme, port);
	return xasprintf("%s://%s:%d", scheme, streq(host, "[::]") ? "[::1]" : host, port);
}

static int start(struct server *server, struct error *err)
{
	_cleanup_close_ int tcp_fd = -1, unix_fd = -1;
	_cleanup_free_ char *api_url = NULL;
	int port = 0;

	server->stop_fd = latch_new(err);
	if (server->stop_fd < 0 || open_data(server, err) < 0 || open_database(server, err) < 0 ||
	    open_places(server, err) < 0)
		return -1;
	if (server->options.listen) {
		if (bind_tcp(&server->options, &tcp_fd, &port, err) < 0)
			return -1;
		api_url = listen_url(&server->options, port);
	}
	if (open_runs(server, server->options.public_url ? server->options.public_url : api_url,
		      err) < 0 ||
	    socket_listen(server->socket_path, &unix_fd, err) < 0)
		return -1;
	server->listening = true;
	if (recover(server, err) < 0 || default_company_ensure(server, err) < 0)
		return -1;
	server->complaints = environments_ensure(server, server->options.environments);
	if (serve(server, &tcp_fd, &unix_fd, err) < 0)
		return -1;
	log_info("berth %s serves %s on %s%s%s", BERTH_VERSION, server->data_path,
		 server->socket_path, api_url ? " and " : "", api_url ? api_url : "");
	return 0;
}

int server_start(const struct server_options *options, struct server **out, struct error *err)
{
	struct server *server = xcalloc(1, sizeof(*server));

	settle_process();
	server->open_files = raise_open_files();
	server->max_runs = bound_runs(options->max_runs);
	server->options = *options;
	if (options->no_local && options->allow_fake) {
		free(server);
		return error_set(
			err, ERR_BAD_REQUEST,
			"--no-local and --allow-fake: places of the fake provider are this "
			"host");
	}
	if (!server->options.idle_exit_ms)
		server->options.idle_exit_ms = IDLE_EXIT_MS;
	if (!server->options.beat_ms)
		server->options.beat_ms = BEAT_MS;
	if (!server->options.retention_ms)
		server->options.retention_ms = RETENTION_MS;
	server->data_dirfd = server->lock_fd = server->stop_fd = -1;
	server->maintenance_fd = server->survey_fd = -1;
	clock_init_system(&server->clock);
	server->started_at = clock_now(&server->clock);
	server->companies = company_cache_new();
	server->event_tallies = event_tallies_new();
	if (start(server, err) < 0) {
		server_free(server);
		return -1;
	}
	*out = server;
	return 0;
}

/* No more requests first, the database last: each step still has what it stands on. */
static void stop(struct server *server)
{
	bool drain = server->options.drain;

	http_stop(server->http, HTTP_STOP_MS);
	server->http = NULL;
	feed_stop(server->feed);
	log_compressor_stop(steal(server->compressor));
	if (server->listening)
		unlink(server->socket_path);
	server->listening = false;
	if (server->runs)
		runs_stop(server->runs, drain, drain ? DRAIN_MS : RUNS_STOP_MS);
	/* Commands stay with their relays; those who wait for them here are woken. */
	if (server->places)
		places_detach(server->places);
	survey_stop(server);
	if (server->execs)
		execs_stop(server->execs);
	if (server->leases)
		leases_stop(server->leases);
	maintenance_stop(server);
}

/* SIGHUP where there is something to read again; elsewhere it ends the server like the others. */
static bool can_reload(const struct server *server)
{
	return server->options.tls_cert || server->options.log_file;
}

static void reload(struct server *server)
{
	_cleanup_error_ struct error err = { 0 };
	int failed = log_reopen();

	if (failed < 0)
		log_error("the log goes on in the old file: %s", strerror(-failed));
	else if (server->options.log_file)
		log_info("the log goes on here");
	if (!server->options.tls_cert)
		return;
	if (http_reload_tls(server->http, &err) < 0)
		log_error("the certificate was not replaced: %s", err.message);
	else
		log_info("read the certificate %s again", server->options.tls_cert);
}

/* Until a signal comes, something here wants to end, or nobody needs the server any more. */
static int wait_for_the_end(struct server *server, int signal_fd, struct error *err)
{
	struct pollfd fds[] = {
		{ .fd = signal_fd, .events = POLLIN },
		{ .fd = server->stop_fd, .events = POLLIN },
	};
	struct signalfd_siginfo info;

	for (;;) {
		int n = poll(fds, ARRAY_SIZE(fds), server->options.idle_exit ? IDLE_LOOK_MS : -1);

		if (n < 0 && errno != EINTR)
			return error_errno(err, errno, "cannot wait for signals");
		if (n == 0 && maintenance_is_idle(server)) {
			log_info("nothing to do for %lld s: stopping",
				 (long long)(server->options.idle_exit_ms / 1000));
			return 0;
		}
		if (n <= 0)
			continue;
		if (read(signal_fd, &info, sizeof(info)) != sizeof(info))
			return 0;
		if (info.ssi_signo != SIGHUP || !can_reload(server)) {
			log_info("signal %u: stopping", info.ssi_signo);
			return 0;
		}
		reload(server);
	}
}

int server_run(struct server *server, struct error *err)
{
	sigset_t ours;

	sigemptyset(&ours);
	sigaddset(&ours, SIGTERM);
	sigaddset(&ours, SIGINT);
	sigaddset(&ours, SIGHUP);

	_cleanup_close_ int signal_fd = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);

	if (signal_fd < 0)
		return error_errno(err, errno, "cannot wait for signals");
	if (wait_for_the_end(server, signal_fd, err) < 0)
		return -1;
	pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
	stop(server);
	log_info("stopped");
	return 0;
}

void server_free(struct server *server)
{
	if (!server)
		return;
	stop(server);
	runs_free(server->runs);
	if (server->has_engine)
		workspace_engine_close(&server->engine);
	execs_free(server->execs);
	if (server->leases)
		leases_free(server->leases);
	maker_store_free(server->maker_host.store);
	places_free(server->places);
	makers_clear(&server->makers);
	free(server->socket_dir);
	if (server->run_logs)
		runlog_store_close(server->run_logs);
	db_close(server->db);
	feed_free(server->feed);
	company_cache_free(server->companies);
	event_tallies_free(server->event_tallies);
	close_fdp(&server->lock_fd);
	close_fdp(&server->data_dirfd);
	close_fdp(&server->stop_fd);
	json_decref(server->sandbox);
	json_decref(server->complaints);
	free(server->claimant);
	free(server->home_path);
	free(server->data_path);
	free(server->socket_path);
	free(server);
}
