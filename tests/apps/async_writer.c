/* Writes 100 bytes to the file "to" asynchronously (POSIX aio), and waits for that. */
#include <aio.h>
#include <fcntl.h>
#include <stddef.h>

int main(void) {
    static char text[100];
    struct aiocb block = {.aio_fildes = open("to", O_WRONLY | O_CREAT, 0666), .aio_buf = text, .aio_nbytes = sizeof text};
    const struct aiocb *list = &block;
    return aio_write(&block) != 0 || aio_suspend(&list, 1, NULL) != 0 || aio_return(&block) != sizeof text;
}
