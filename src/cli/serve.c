#include <string.h>

#include "api/server.h"
#include "base/log.h"
#include "base/path.h"
#include "cli/verbs.h"

static const struct flag FLAGS[] = {
	{ "listen", 0, "ADDR:PORT", "also listen on TCP (127.0.0.1:7411; port 0 picks one)",
	  false },
	{ "socket", 0, "PATH", "unix socket; default: berth.sock in the data directory", false },
	{ "database", 0, "URL", "postgres://... instead of the embedded database", false },
	{ "allow-fake", 0, NULL, "environments may use the fake provider (tests)", false },
	{ "idle-exit", 0, NULL, "end when nothing runs and nobody has asked for a minute", false },
	{ "idle-after", 0, "TIME", "with --idle-exit: after this long instead (60s)", false },
	{ "drain", 0, NULL, "on SIGTERM wait for running runs to end", false },
	{ "retention", 0, "TIME", "drop finished history older than this (30d)", false },
	{ "sweep-every", 0, "TIME", "look this often for leases that are over (1s)", false },
	{ "reconcile-every", 0, "TIME", "compare with the providers this often (30s)", false },
	{ "retry-after", 0, "TIME", "first pause before a failed cleanup is tried again (1s)",
	  false },
	{ "beat-every", 0, "TIME", "tell the other nodes this often that this one lives (10s)",
	  false },
	{ "absence", 0, "TIME", "a place that no server speaks to ends after this long (15m)",
	  false },
	{ "allow-path", 0, "DIR",
	  "native places may mount what is below it, and have roots there (more than once)", true },
	{ "verbose", 'v', NULL, "log every request", false },
	{ 0 },
};

static int serve(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	struct server_options options = {
		.data_path = cli->data_path,
		.listen = args_value(args, "listen"),
		.socket_path = args_value(args, "socket"),
		.database_url = args_value(args, "database"),
		.allow_fake = args_has(args, "allow-fake"),
		.idle_exit = args_has(args, "idle-exit"),
		.drain = args_has(args, "drain"),
	};
	_cleanup_strv_ char **allowed = NULL;
	struct server *server;
	int code = 0;

	for (size_t i = 0; args_nth(args, "allow-path", i); i++) {
		const char *path = args_nth(args, "allow-path", i);

		if (!path_is_absolute(path) || !path_is_clean(path))
			return fprintf(stderr, "berth: --allow-path wants a clean absolute path\n"),
			       EXIT_USAGE;
		strv_push(&allowed, xstrdup(path));
	}
	options.allowed_paths = allowed;

	if (!args_duration_ms(args, "retention", &options.retention_ms) ||
	    !args_duration_ms(args, "absence", &options.absence_ms) ||
	    !args_duration_ms(args, "idle-after", &options.idle_exit_ms) ||
	    !args_duration_ms(args, "sweep-every", &options.sweep_ms) ||
	    !args_duration_ms(args, "reconcile-every", &options.reconcile_ms) ||
	    !args_duration_ms(args, "retry-after", &options.cleanup_base_ms) ||
	    !args_duration_ms(args, "beat-every", &options.beat_ms))
		return EXIT_USAGE;
	if (args_has(args, "idle-after") && !options.idle_exit)
		return fprintf(stderr, "berth: --idle-after needs --idle-exit\n"), EXIT_USAGE;
	/* Others take over from a node that misses a few beats. */
	if (options.beat_ms > NODE_DEAD_MS / 3)
		return fprintf(stderr, "berth: --beat-every may be at most %ds\n",
			       NODE_DEAD_MS / 3000),
		       EXIT_USAGE;
	if (cli->url)
		return fprintf(stderr,
			       "berth: serve takes no --url; --listen says where to listen\n"),
		       EXIT_USAGE;
	log_set_level(args_has(args, "verbose") ? LOG_DEBUG_ : cli->quiet ? LOG_WARN_ : LOG_INFO_);
	if (server_start(&options, &server, &err) < 0) {
		log_error("cannot start: %s", err.message);
		return err.code == ERR_LOCKED ? EXIT_ALREADY_RUNNING : 1;
	}
	if (server_run(server, &err) < 0) {
		log_error("stopped: %s", err.message);
		code = 1;
	}
	server_free(server);
	return code;
}

const struct verb VERB_SERVE = {
	.name = "serve",
	.arguments = "",
	.summary = "run the server in the foreground",
	.help = "One server per data directory; a second one says who holds it and exits 3. The "
		"API is on\n"
		"the unix socket for the server's own user and root, and on loopback TCP with "
		"--listen.",
	.flags = FLAGS,
	.run = serve,
};
