#include "board.h"
#include "example.h"

int main(void)
{
    board_start();
    const int code = example();
    board_exit();
    return code;
}
