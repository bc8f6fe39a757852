"""Readers of images with boxes: COCO JSON, Pascal VOC XML, YOLO text."""
