#include "workspace/workspace.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"

#define CACHE_NAME "cache"
#define PLACES_NAME "places"
/* Nothing but speed is lost with them, so what nobody used for so long goes. */
#define KEPT_S ((time_t)7 * 24 * 3600)

static void closedirp(DIR **dir)
{
	if (*dir)
		closedir(*dir);
}

static void sweep(int root_fd, const char *name)
{
	int fd = openat(root_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(closedirp) DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	time_t now = time(NULL);
	struct dirent *entry;
	struct stat st;

	while (dir && (entry = readdir(dir))) {
		if (path_is_segment(entry->d_name) &&
		    fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    st.st_mtime < now - KEPT_S)
			dir_remove_tree(dirfd(dir), entry->d_name, NULL);
	}
	if (!dir)
		close_fdp(&fd);
}

void workspace_sweep(struct workspace_engine *engine)
{
	sweep(engine->results.root_fd, CACHE_NAME);
	sweep(engine->results.root_fd, PLACES_NAME);
}

int workspace_engine_open(struct workspace_engine *engine, const char *data_path,
			  struct clock *clock, struct error *err)
{
	_cleanup_free_ char *root = path_join(data_path, "workspaces");

	*engine = (struct workspace_engine){ .results.root_fd = -1, .clock = clock };
	if (results_open(&engine->results, root, err) < 0)
		return -1;
	if (dir_make(engine->results.root_fd, CACHE_NAME, 0700, err) < 0 ||
	    dir_make(engine->results.root_fd, PLACES_NAME, 0700, err) < 0) {
		workspace_engine_close(engine);
		return error_wrap(err, "the workspaces");
	}
	workspace_sweep(engine);
	engine->data_path = xstrdup(data_path);
	engine->cache_path = path_join(root, CACHE_NAME);
	return 0;
}

void workspace_engine_close(struct workspace_engine *engine)
{
	results_close(&engine->results);
	free(engine->cache_path);
	free(engine->data_path);
	engine->cache_path = engine->data_path = NULL;
}

int workspace_forget_place(struct workspace_engine *engine, const char *place_id, struct error *err)
{
	_cleanup_close_ int places = -1;

	if (!path_is_segment(place_id))
		return error_set(err, ERR_BAD_PATH, "this is not the id of a place");
	if (dir_open(engine->results.root_fd, PLACES_NAME, &places, err) < 0)
		return -1;
	return dir_remove_tree(places, place_id, err);
}
