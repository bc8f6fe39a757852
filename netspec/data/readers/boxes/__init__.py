"""Readers of pictures with boxes: COCO JSON, Pascal VOC XML, YOLO text."""
