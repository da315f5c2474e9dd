#include "cli/settings.h"
#include "base/text.h"
#include "cli/cli.h"

static int start_log(const struct cli *cli, const struct settings *settings, struct error *err)
{
	enum log_level level = LOG_INFO_;
	int failed;

	log_level_parse(settings->log_level, &level);
	if (cli->quiet)
		level = LOG_WARN_;
	log_set_level(settings->verbose ? LOG_DEBUG_ : level);
	log_set_format(streq(settings->log_format, "json") ? LOG_JSON : LOG_TEXT);
	failed = settings->server.log_file ? log_to_file(settings->server.log_file) : 0;
	if (failed < 0)
		return error_errno(err, -failed, "cannot write the log to %s",
				   settings->server.log_file);
	return 0;
}

static int run_server(const struct settings *settings)
{
	_cleanup_error_ struct error err = { 0 };
	struct server *server;
	int code = 0;

	if (server_start(&settings->server, &server, &err) < 0) {
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

static int serve(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_(settings_clear) struct settings settings = { 0 };

	/* The variable is for clients, and may stand in the same shell. */
	if (args_has(args, "url"))
		return fprintf(stderr, "berth: serve takes no --url; use --listen\n"), EXIT_USAGE;
	if (settings_read(&settings, cli, args, &err) < 0)
		return cli_fail(cli, &err, EXIT_USAGE);
	if (args_has(args, "idle-after") && !settings.server.idle_exit)
		return fprintf(stderr, "berth: --idle-after needs --idle-exit\n"), EXIT_USAGE;
	if (start_log(cli, &settings, &err) < 0)
		return cli_fail(cli, &err, 1);
	return run_server(&settings);
}

VERB(SERVE, 600) = {
	.name = "serve",
	.arguments = "",
	.summary = "run the server in the foreground",
	.help = "One server per data directory; a second one names the first and exits with 3. The "
		"API is\non the unix socket for the server's own user and root, and on TCP with "
		"--listen. Every flag\nis also a key of the config file (berth.yaml in the data "
		"directory, or\n/etc/berth/berth.yaml) and a variable: --log-format is "
		"BERTH_LOG_FORMAT.",
	.flags = SERVE_FLAGS,
	.former = SERVE_FORMER_FLAGS,
	.usual = settings_defaults,
	.run = serve,
};
