"""Import torchvision, even if it was built for a different torch.

torchvision's Python code refers to operators that its compiled library registers. If that library does not match the
installed torch (a CPU wheel, for example), the import fails with "operator torchvision::nms does not exist". We only
need its downloads, so on exactly that error we declare the missing schemas and import again.
"""

import sys
from types import ModuleType

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_declared: list[object] = []  # the schemas live as long as the library object


def import_torchvision() -> ModuleType:
    """Import and return torchvision with its `datasets`; a plain import if the installation works."""
    try:
        import torchvision
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for schema in _SCHEMAS:
            library.define(schema)  # type: ignore[no-untyped-call]
        _declared.append(library)
        import torchvision
    import torchvision.datasets

    module: ModuleType = torchvision
    return module
