#include <string.h>

#include "base/fd.h"
#include "base/text.h"
#include "cli/sse.h"
#include "cli/cli.h"

#define RECENT 100 /* events shown when nobody says since when */

static bool print_raw(const char *data, size_t len)
{
	return fd_write_all(STDOUT_FILENO, data, len, NULL) == 0 &&
	       fd_write_all(STDOUT_FILENO, "\n", 1, NULL) == 0;
}

/* What an event is about, in one line: the few words of its payload that say it. */
static void print_line(const char *type, const json_t *event)
{
	static const char *const WORDS[] = { "action",   "status",    "runId",     "agentId",
					     "entityId", "errorCode", "endOffset", "oldestId" };
	const json_t *payload = json_object_at(event, "payload");
	const char *time = json_str(event, "createdAt");

	printf("%-24s %-10lld ", time ? time : "-", (long long)json_int(event, "id", 0));
	print_cell(stdout, type);
	for (size_t i = 0; i < ARRAY_SIZE(WORDS); i++) {
		const json_t *value = json_object_get(payload ? payload : event, WORDS[i]);

		if (json_is_string(value)) {
			printf(" %s=", WORDS[i]);
			print_cell(stdout, json_string_value(value));
		} else if (json_is_integer(value)) {
			printf(" %s=%lld", WORDS[i], (long long)json_integer_value(value));
		}
	}
	putchar('\n');
	fflush(stdout);
}

static bool show_event(void *arg, const char *type, const char *data, size_t len)
{
	struct sse *sse = arg;
	_cleanup_json_ json_t *event = json_parse(data, len, NULL);

	if (!event)
		return true;
	if (streq(type, "dropped"))
		return true; /* taken up again at once */
	if (streq(type, "reset"))
		fprintf(stderr, "berth: older events are gone; these begin at %lld\n",
			(long long)json_int(event, "oldestId", 0));
	else if (sse->cli->json)
		return print_raw(data, len);
	else
		print_line(type, event);
	return !ferror(stdout);
}

static bool ignore_event(void *arg, const char *type, const char *data, size_t len)
{
	(void)arg, (void)type, (void)data, (void)len;
	return true;
}

/* An empty stream says where the events are now. */
static int find_recent(struct sse *sse, struct error *err)
{
	struct sse look = *sse;

	look.follow = false;
	look.on_event = ignore_event;

	int r = sse_run(&look, err);

	sse->api = look.api;
	sse->last_id = MAX_OF(look.last_id - RECENT, 0);
	return r;
}

static int show(struct sse *sse, bool since_given, struct error *err)
{
	if (api_company(sse->cli, sse->api, sse->company_id, err) < 0)
		return -1;
	if (!since_given && !sse->follow && find_recent(sse, err) < 0)
		return -1;
	return sse_run(sse, err);
}

static int events_verb(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	struct sse sse = { .cli = cli,
			   .types = args_value(args, "types"),
			   .last_id = -1,
			   .follow = args_has(args, "follow"),
			   .on_event = show_event,
			   .wake_fd = -1 };
	int code = 0;

	sse.arg = &sse;
	if (!args_int(args, "since", 0, INT64_MAX, &sse.last_id))
		return EXIT_USAGE;
	if (api_connect(cli, true, &sse.api, &err) < 0 ||
	    show(&sse, args_has(args, "since"), &err) < 0)
		code = cli_fail(cli, &err, 1);
	api_close(sse.api);
	return code;
}

static const struct flag FLAGS[] = {
	{ "follow", 'f', NULL, "follow until interrupted, across restarts of the server", false },
	{ "types", 0, "TYPES",
	  "only these, separated by commas: heartbeat.run.status, activity.logged, ...", false },
	{ "since", 0, "ID", "start after this event; 0: with the oldest", false },
	{ 0 },
};

VERB(EVENTS, 210) = { .name = "events",
		      .arguments = "",
		      .flags = FLAGS,
		      .summary = "show events of a company: runs, agents, changes",
		      .help = "Without --since: the most recent events, or with -f only new ones. "
			      "--json prints one\nobject per line; --since takes its id.",
		      .run = events_verb };
