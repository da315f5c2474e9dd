#include "workspace/workspace.h"

#include <fcntl.h>
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"

#define CACHE_NAME "cache"
#define PLACES_NAME "places"

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
		return error_set(err, ERR_BAD_PATH, "this is no place's id");
	if (dir_open(engine->results.root_fd, PLACES_NAME, &places, err) < 0)
		return -1;
	return dir_remove_tree(places, place_id, err);
}
