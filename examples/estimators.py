"""Partially stochastic networks as estimators of scikit-learn: a pipeline, a grid search, and an interval per row.

python examples/estimators.py      about a minute on one core
"""

import numpy as np
from sklearn.datasets import load_diabetes, load_wine
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from psdenets import PSDEClassifier, PSDERegressor

x, y = load_diabetes(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)

search = GridSearchCV(PSDERegressor(epochs=20), {"cut": ["vertical", "full"], "lr": [0.003, 0.01]}, cv=3)
search.fit(x_train, y_train)
model = search.best_estimator_
mean, std = model.predict(x_test, return_std=True)
low, high = model.predict_interval(x_test, level=0.9)
print(f"chosen by cross-validation: {search.best_params_}")
print(f"R^2 {model.score(x_test, y_test):.3f}; 90 % intervals hold {np.mean((low <= y_test) & (y_test <= high)):.0%}")
print(f"first patient: {mean[0]:.0f} +- {std[0]:.0f}, true value {y_test[0]:.0f}")

x, y = load_wine(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)
wines = make_pipeline(StandardScaler(), PSDEClassifier(cut="full", epochs=20)).fit(x_train, y_train)
print(
    f"wines: accuracy {wines.score(x_test, y_test):.1%}, first probabilities {wines.predict_proba(x_test)[0].round(3)}"
)
