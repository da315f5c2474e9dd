/*
 * The one verb besides `serve` that touches the data directory itself: there is no server yet whose
 * directory it could be.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "cli/cli.h"
#include "db/restore.h"

#define DATABASE "berth.db"

/* Empty, or with nothing but what a restore that was killed has left. */
static int check_empty(const char *path, int dirfd, struct error *err)
{
	_cleanup_close_ int copy = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
	DIR *dir = fdopendir(copy);
	bool resumed = faccessat(dirfd, DATABASE DB_RESTORING, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	const struct dirent *entry;
	int r = 0;

	if (!dir)
		return error_errno(err, errno, "cannot look into %s", path);
	steal_fd(&copy);
	while (r == 0 && (entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (streq(name, ".") || streq(name, "..") || streq(name, DATABASE DB_RESTORING) ||
		    (resumed && streq(name, "node.json")))
			continue;
		r = error_set(err, ERR_CONFLICT,
			      "%s is not empty (%.60s is there): a backup is restored into an "
			      "empty directory",
			      path, name);
	}
	closedir(dir);
	return r;
}

static int write_node(int dirfd, const struct restored *found, struct error *err)
{
	_cleanup_json_ json_t *node = json_object();
	_cleanup_free_ char *text = NULL;

	if (!id_is_set(found->node_id))
		return 0;
	json_put_str(node, "id", found->node_id);
	json_put_int(node, "bootEpoch", found->boot_epoch);
	text = json_text(node);
	return file_replace(dirfd, "node.json", text, strlen(text), 0600, err);
}

static int restore_into(const char *backup, const char *data, struct restored *found,
			struct error *err)
{
	_cleanup_free_ char *database = path_join(data, DATABASE);
	_cleanup_close_ int dirfd = -1;

	if (dir_make(AT_FDCWD, data, 0700, err) < 0 || dir_open(AT_FDCWD, data, &dirfd, err) < 0 ||
	    check_empty(data, dirfd, err) < 0 ||
	    db_restore_prepare(backup, database, found, err) < 0 ||
	    write_node(dirfd, found, err) < 0)
		return -1;
	return db_restore_commit(database, err);
}

static int restore(struct cli *cli, const struct args *args)
{
	_cleanup_error_ struct error err = { 0 };
	_cleanup_json_ json_t *answer = json_object();
	struct restored found;

	/* Never into the default one by mistake. */
	if (!args_has(args, "data") && !getenv("BERTH_DATA"))
		return fprintf(stderr, "berth: restore needs --data DIR (or BERTH_DATA), an empty "
				       "directory\n"),
		       EXIT_USAGE;
	if (restore_into(args->positional[0], cli->data_path, &found, &err) < 0)
		return cli_fail(cli, &err, 1);
	json_put_str(answer, "dataPath", cli->data_path);
	json_put_int(answer, "schemaVersion", found.version);
	json_put_str(answer, "nodeId", id_is_set(found.node_id) ? found.node_id : NULL);
	if (cli->json)
		print_json(answer);
	else
		printf("restored into %s; start it with `berth serve --data %s`\n", cli->data_path,
		       cli->data_path);
	return 0;
}

VERB(RESTORE, 660) = {
	.name = "restore",
	.arguments = "FILE",
	.summary = "restore a backup into an empty data directory (--data DIR)",
	.help = "FILE is a file that `berth backup` wrote. It is checked first: complete, of "
		"Berth, of no\nnewer schema. It has every row, but no logs of runs (copy the "
		"directory logs/ beside it if\nyou want them), no keys and no config file. The "
		"first start settles what was running when\nthe backup was made: runs whose "
		"commands are gone fail, places are deleted.",
	.min_args = 1,
	.max_args = 1,
	.run = restore,
};
