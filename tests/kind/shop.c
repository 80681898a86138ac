/*
 * The program of the Pods that `cargo xtask kind lifecycle` starts.
 *
 * shop run     ends at once, as an init container does: `run` is the images' argument where a Pod gives none.
 * shop FOLDER  answers at port 8080, after a while in which its readiness probe fails. Of the Pods that share the folder, the first one's ends
 *              at once each time that it is started, and the second one's never answers.
 */
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

static void failed(const char *what) {
  perror(what);
  exit(2);
}

/* Whether this Pod has a role: it is written into the role's file by who comes first. */
static int has(const char *folder, const char *role) {
  char path[PATH_MAX], own[HOST_NAME_MAX + 1] = "", holder[HOST_NAME_MAX + 1] = "";
  gethostname(own, HOST_NAME_MAX);
  snprintf(path, sizeof path, "%s/%s", folder, role);
  int file = open(path, O_RDWR | O_CREAT, 0644);
  if (file < 0 || flock(file, LOCK_EX)) failed(path);
  ssize_t length = read(file, holder, HOST_NAME_MAX);
  if (length == 0) {
    length = write(file, own, strlen(own));
    strcpy(holder, own);
  }
  if (length < 1) failed(path);
  close(file);
  return !strcmp(holder, own);
}

int main(int argc, char **argv) {
  if (argc < 2 || !strcmp(argv[1], "run")) return 0;
  if (has(argv[1], "crashes")) return 1;
  while (has(argv[1], "unready")) pause();
  sleep(3);
  int server = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(8080)};
  if (bind(server, (struct sockaddr *)&at, sizeof at) || listen(server, 8)) failed("port 8080");
  for (;;) close(accept(server, NULL, NULL));
}
