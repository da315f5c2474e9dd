/*
 * The self-test of native places: one is made as the config says, forbidden things are tried in it,
 * and what happened is kept as evidence in the provider's directory. It can be repeated at any time
 * (`berth env probe`, `berth doctor --sandbox`) and harms nobody.
 */
#include "driver/native/native_probe.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/text.h"
#include "place/exec.h"
#include "runlog/runlog.h"

#define RUN_WAIT_MS 20000
#define OUTPUT_MAX (64 << 10)
#define EVIDENCE_NAME "selftest.json"

/*
 * One line for each attempt. What succeeds that should not is a wall with a hole in it. Only
 * programs that every system has; one that is missing fails, which is what is expected.
 */
static const char ATTEMPTS[] =
	"t() { n=$1; shift; if \"$@\" >/dev/null 2>&1; then echo \"$n allowed\"; else echo \"$n "
	"denied\"; fi; }\n"
	"t read_shadow cat /etc/shadow\n"
	"t see_data_directory ls \"$DATA\"\n"
	"t change_programs touch /usr/bin/berth-was-here\n"
	"t mount mount -t tmpfs none /tmp\n"
	"t new_user_namespace unshare -U true\n"
	"t device_node mknod /tmp/node c 1 3\n"
	"t read_kernel_log dmesg\n"
	"t change_kernel_setting sh -c 'echo x > /proc/sys/kernel/hostname'\n"
	"t read_memory_of_relay sh -c ': < /proc/1/mem'\n"
	"t see_host_processes test \"$(ls /proc | grep -c '^[0-9]')\" -gt 20\n"
	"t reach_network sh -c 'grep -v lo: /proc/net/dev | grep -q :.*[0-9]'\n"
	"t see_sysfs ls /sys/kernel\n"
	"t signal_the_server sh -c 'kill -0 $SERVER'\n";

static int read_output(struct runlog_store *store, const char *name, struct buf *out,
		       struct error *err)
{
	struct runlog_reader *reader;
	struct runlog_chunk chunk;
	int r;

	if (runlog_reader_open(store, name, 0, &reader, err) < 0)
		return -1;
	while ((r = runlog_read(reader, OUTPUT_MAX, &chunk, err)) > 0 && out->len < OUTPUT_MAX)
		buf_append(out, chunk.data, chunk.len);
	runlog_reader_close(reader);
	return r < 0 ? -1 : 0;
}

static int run_attempts(struct places *places, const struct native_probe *p,
			struct runlog_store *logs, struct buf *out, struct error *err)
{
	_cleanup_free_ char *data = xasprintf("DATA=%s", p->state_path);
	char *argv[] = { (char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c",
			 (char *)(uintptr_t)ATTEMPTS, NULL };
	_cleanup_free_ char *server = xasprintf("SERVER=%d", (int)getpid());
	char *env[] = { data, server, NULL };
	char exec_id[ID_SIZE];
	struct exec_spec spec = {
		.exec_id = exec_id,
		.place_id = p->place_id,
		.generation = p->generation,
		.argv = argv,
		.env = env,
		.timeout_ms = RUN_WAIT_MS,
	};
	struct exec_result result;
	struct exec *exec;
	int r;

	id_new(exec_id);
	if (runlog_open(logs, exec_id, &spec.log, err) < 0)
		return -1;
	r = exec_start(places, &spec, &exec, err);
	if (r == 0)
		r = exec_wait(exec, &result, err);
	if (r == 0)
		r = read_output(logs, exec_id, out, err);
	runlog_close(spec.log);
	runlog_remove(logs, exec_id, NULL);
	return r;
}

/* {attempt, denied} each. Whether the network is reached says the config. */
static json_t *judge(struct buf *output, bool network, bool *ok)
{
	json_t *evidence = json_array();
	char *rest = output->data, *line;

	*ok = false;
	while (rest && (line = strsep(&rest, "\n"))) {
		char *word = strchr(line, ' ');
		json_t *item;
		bool denied;

		if (!word)
			continue;
		*word++ = 0;
		denied = streq(word, "denied");
		item = json_object();
		json_put_str(item, "attempt", line);
		json_put_bool(item, "denied", denied);
		json_array_append_new(evidence, item);
		*ok = json_array_size(evidence) == 1 ? true : *ok;
		if (!denied && !(network && streq(line, "reach_network")))
			*ok = false;
	}
	return evidence;
}

int native_attempts(struct places *places, const struct native_probe *p, json_t **evidence,
		    bool *ok, struct error *err)
{
	_cleanup_buf_ struct buf output = { 0 };
	struct runlog_store *logs;
	int r;

	if (runlog_store_open(p->dirfd, OUTPUT_MAX, &logs, err) < 0)
		return -1;
	r = run_attempts(places, p, logs, &output, err);
	runlog_store_close(logs);
	if (r < 0)
		return -1;
	*evidence = judge(&output, p->network, ok);
	return 0;
}

void native_keep_evidence(int dirfd, const json_t *details)
{
	_cleanup_free_ char *text = json_text(details);

	file_replace(dirfd, EVIDENCE_NAME, text, strlen(text), 0600, NULL);
}
