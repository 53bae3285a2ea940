"""A thread that makes what will be asked for next."""

import threading
from collections.abc import Callable, Hashable
from queue import SimpleQueue
from typing import Generic, TypeVar
from weakref import WeakMethod, finalize

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


class Ahead(Generic[Key, Item]):
    """What a method makes of a key, made in a thread while the items before are in use, ``room`` at a time.

    The thread follows the order in which items are asked for: after a key comes ``following`` it. A request for any
    other key begins anew from there. An error in the making is raised where its item is asked for. The thread never
    keeps alive the object that the method belongs to, and ends with it.
    """

    def __init__(self, make: Callable[[Key], Item], following: Callable[[Key], Key], *, room: int) -> None:
        self._make, self._following, self._room = WeakMethod(make), following, room
        self._run: _Run[Key, Item] | None = None
        self._end: finalize[..., Ahead[Key, Item]] | None = None
        self._expected: Key | None = None

    def get(self, key: Key) -> Item:
        """The item of a key; waits for it where it is not made yet."""
        if self._run is None or key != self._expected:
            self.stop()
            self._run = _Run(self._make, self._following, key, self._room)
            # a thread outlives this object by no more than the item in hand
            self._end = finalize(self, self._run.stop)
        self._expected = self._following(key)
        made = self._run.take()
        if isinstance(made, _Failure):
            self.stop()
            raise made.error
        return made

    def stop(self) -> None:
        """End the thread; a later request begins a new one."""
        if self._end is not None:
            self._end()
        self._run = None


class _Failure:
    """An error in place of an item."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Run(Generic[Key, Item]):
    """A thread and the items that it has made, in order from a first key on."""

    def __init__(
        self, make: "WeakMethod[Callable[[Key], Item]]", following: Callable[[Key], Key], first: Key, room: int
    ) -> None:
        self._made: SimpleQueue[Item | _Failure] = SimpleQueue()
        self._room, self._stopped = threading.Semaphore(room), threading.Event()
        arguments = (make, following, first)
        self.thread = threading.Thread(target=self._work, args=arguments, name="graftseg batches", daemon=True)
        self.thread.start()

    def take(self) -> Item | _Failure:
        made = self._made.get()
        self._room.release()
        return made

    def stop(self) -> None:
        self._stopped.set()
        self._room.release()

    def _work(self, weak: "WeakMethod[Callable[[Key], Item]]", following: Callable[[Key], Key], key: Key) -> None:
        while True:
            self._room.acquire()
            # between two items nothing here holds the method's object
            make = None if self._stopped.is_set() else weak()
            if make is None:
                return
            try:
                self._made.put(make(key))
            except BaseException as error:
                self._made.put(_Failure(error))
                return
            del make
            key = following(key)
